"""A terminal for programs under test: a pseudo terminal, and a screen that obeys the escapes which memplan uses. It knows two
screens, so that a test can say what is left when a view has gone."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

ESCAPE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """Rows of characters. An escape that is not known is an error: nothing may be drawn by luck."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.main, self.alternate = self.blank(), self.blank()
        self.on_alternate, self.cursor_shown, self.coloured = False, True, False
        self.row = self.column = 0
        self.saved = (0, 0)
        self.rest = ""
        self.wrapped = 0  # times that a line was too long

    def blank(self):
        return [[" "] * self.columns for _ in range(self.rows)]

    def cells(self):
        return self.alternate if self.on_alternate else self.main

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells()]

    def text(self):
        return "\n".join(self.lines())

    def resize(self, columns, rows):
        self.__dict__.update(columns=columns, rows=rows)
        for name in ("main", "alternate"):
            old, new = getattr(self, name), self.blank()
            for i in range(min(rows, len(old))):
                for k in range(min(columns, len(old[0]))):
                    new[i][k] = old[i][k]
            setattr(self, name, new)
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns - 1)

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = ESCAPE.match(text, at)
                if not found:
                    self.rest = text[at:]
                    return
                self.obey(found[1], found[2])
                at = found.end()
            else:
                self.put(text[at])
                at += 1

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == self.rows:
                self.row -= 1
                self.cells().append([" "] * self.columns)
                self.cells().pop(0)
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character == "\a":
            pass
        else:
            if self.column == self.columns:
                self.wrapped += 1
                self.column = 0
                self.put("\n")
            self.cells()[self.row][self.column] = character
            self.column += 1

    def obey(self, numbers, letter):
        if letter == "H":
            self.row = self.column = 0
        elif letter == "K":
            for column in range(self.column, self.columns):
                self.cells()[self.row][column] = " "
        elif letter == "J":
            for column in range(self.column, self.columns):
                self.cells()[self.row][column] = " "
            for row in range(self.row + 1, self.rows):
                self.cells()[row] = [" "] * self.columns
        elif letter == "m":
            self.coloured = True
        elif letter in "hl" and numbers == "?1049":
            if letter == "h" and not self.on_alternate:
                self.saved, self.alternate = (self.row, self.column), self.blank()
            self.on_alternate = letter == "h"
            if letter == "l":
                self.row, self.column = self.saved
        elif letter in "hl" and numbers == "?25":
            self.cursor_shown = letter == "h"
        elif letter in "hl" and numbers == "?2004":
            pass  # a shell's bracketed paste
        else:
            raise ValueError(f"unknown escape {numbers}{letter}")


class Terminal:
    """A program that runs on a terminal of its own."""

    def __init__(self, command, columns=80, rows=24, **environment):
        self.screen = Screen(columns, rows)
        self.bytes = ""
        master, slave = pty.openpty()
        self.resize_file(slave, columns, rows)
        self.before = termios.tcgetattr(slave)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(master)
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for file in range(3):
                os.dup2(slave, file)
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment})
        self.file, self.slave = master, slave
        self.status = None

    @staticmethod
    def resize_file(file, columns, rows):
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.screen.resize(columns, rows)
        self.resize_file(self.slave, columns, rows)

    def type(self, text):
        os.write(self.file, text.encode())

    def kill(self, number):
        os.kill(self.pid, number)

    def read(self, seconds):
        """What comes within so long; False when nothing did."""
        if not select.select([self.file], [], [], seconds)[0]:
            return False
        text = os.read(self.file, 65536).decode(errors="replace")
        self.bytes += text
        self.screen.feed(text)
        return True

    def wait_for(self, condition, seconds=30):
        """Reads until condition(screen) holds."""
        until = time.monotonic() + seconds
        while not condition(self.screen):
            if time.monotonic() > until:
                raise AssertionError(f"waited {seconds} s in vain; the screen:\n{self.screen.text()}")
            self.read(0.05)

    def wait_for_text(self, text, seconds=30):
        self.wait_for(lambda screen: text in screen.text(), seconds)

    def end(self, seconds=30):
        """Waits for the program's end; returns its exit status, or minus the signal that ended it."""
        until = time.monotonic() + seconds
        while self.status is None:
            while self.read(0.02):
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"did not end in {seconds} s; the screen:\n{self.screen.text()}")
        while self.read(0):
            pass
        return self.status

    def modes(self):
        return termios.tcgetattr(self.slave)

    def is_sane(self):
        """As it was before the program: main screen, cursor, echo and lines."""
        return not self.screen.on_alternate and self.screen.cursor_shown and self.modes() == self.before

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)
        os.close(self.slave)
