#!/bin/sh
# The program that ssh starts to ask the user something (SSH_ASKPASS in ssh(1)), with the prompt as
# its argument.
exec "$QUICKSAND_ASKPASS_PYTHON" -IS "$QUICKSAND_ASKPASS_CLIENT" "$@"
