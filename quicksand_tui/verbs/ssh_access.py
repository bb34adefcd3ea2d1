"""The verbs of SSH into sandboxes."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import SANDBOX
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option

# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
SSH = command("ssh", ".ssh.ssh_command", "Run ssh with a sandbox, with all that ssh can.",
    flag("--stdio", "Be the SSH server for NAME on stdin and stdout; for ProxyCommand."),
    argument("name", Kind.SANDBOX, "[USER@]NAME"),
    argument("argv", Kind.ARGV, "[SSH OPTIONS] [COMMAND]...", repeatable=True,
             required=False),
    takes_rest=True)

SSH_CONFIG = command("ssh-config", ".ssh.ssh_config",
    "Let ssh, scp, rsync, git and editors reach NAME.qs.",
    flag("--install", "Include it in ~/.ssh/config."),
    flag("--remove", "Remove it from there."),
    flag("--dry-run", "Show what would change there, and change nothing."))

CODE = command("code", ".ssh.code", "Open an editor of this host on a sandbox, by SSH.",
    SANDBOX,
    argument("directory", Kind.TEXT, "[DIR]", required=False),
    option("--editor", Kind.CHOICE, "", "Open this one.", default="code",
           shows_default=True, choices=("code", "zed", "jetbrains")),
    flag("--check", "Only say what the guest lacks, and how the editor would be called."))

SSH_GATEWAY = command("ssh-gateway", ".ssh.gateway",
    "Serve SSH at a port, for other machines, by public keys.",
    option("--listen", Kind.TEXT, "ADDRESS", "Listen at this port, or HOST:PORT.",
           required=True),
    option("--keys", Kind.FILE, "FILE",
           "Take the keys of this file.  [default: ssh/authorized_keys of our data]"))
# fmt: on
