# GNOME Web for a desktop, without questions of a first run.

mkdir -p /etc/dconf/profile /etc/dconf/db/local.d
printf 'user-db:user\nsystem-db:local\n' >/etc/dconf/profile/user
cat >/etc/dconf/db/local.d/50-quicksand <<'END'
[org/gnome/epiphany]
ask-for-default=false
homepage-url='about:blank'
restore-session-policy='crashed'

[org/gnome/epiphany/web]
remember-passwords=false
END
if command -v dconf >/dev/null; then dconf update; fi
# GTK and WebKit draw without OpenGL: what llvmpipe makes for them faults in an emulated guest.
printf 'GSK_RENDERER=cairo\nWEBKIT_DISABLE_COMPOSITING_MODE=1\n' >>/etc/environment
