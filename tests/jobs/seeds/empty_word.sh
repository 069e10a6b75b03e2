"" train.py
/ train.py
accelerate "" train.py
