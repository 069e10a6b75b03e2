/* The style sheets and the script of reports/html/, which the build turns into strings (make/embed.sh). */
#ifndef MEMPLAN_REPORTS_HTML_ASSETS_H
#define MEMPLAN_REPORTS_HTML_ASSETS_H

extern const char picture_css[], page_css[], page_js[];

#endif
