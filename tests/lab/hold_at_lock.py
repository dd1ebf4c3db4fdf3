"""Run `kru` and stop just before it takes the lock of its folder, until the file GO is there: GO ARGUMENTS...

When it stops there it says "held".
"""

import os
import sys
import time

from kru.lab.cli import main


def hold_until(go):
    def hook(event, arguments):
        if event == "open" and os.path.basename(str(arguments[0])) == ".lock":
            os.write(1, b"held\n")
            while not os.path.exists(go):
                time.sleep(0.01)

    sys.addaudithook(hook)


if __name__ == "__main__":
    hold_until(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
