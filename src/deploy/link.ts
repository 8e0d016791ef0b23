// Lets editors, `tsc` and `node --test` resolve `townhall` in a folder where nothing is installed: writes
// files below `.townhall/` that point to the running installation. They contain paths of this machine, so
// version control ignores them.
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { installationFile } from '../kernel/operator-code.ts';

/** Extended by the tsconfig.json of a project. */
const typesFile = '.townhall/tsconfig.json';
/** Imported before the tests of a plugin. */
const registerFile = '.townhall/register.js';

/**
 * Returns the paths of the files that it wrote, relative to the folder. Throws when this installation is the
 * single executable, which contains no types.
 */
export async function linkInstallation(path: string): Promise<string[]> {
  if (installationFile === null)
    throw new Error(
      'The executable has no types. Install the package "townhall" with npm and use it to link: npx townhall link',
    );
  const directory = resolve(path);
  await mkdir(join(directory, '.townhall'), { recursive: true, mode: 0o700 });
  const texts = {
    [typesFile]: `${JSON.stringify(compilerOptions(installationFile, directory), null, 2)}\n`,
    [registerFile]: registration(installationFile),
  };
  for (const [file, text] of Object.entries(texts)) await writeFile(join(directory, file), text);
  return Object.keys(texts);
}

function compilerOptions(entry: string, directory: string): object {
  const typeRoots = [join(directory, 'node_modules/@types'), join(rootOf(entry), 'node_modules/@types')];
  const hasNodeTypes = typeRoots.some((folder) => existsSync(join(folder, 'node')));
  return {
    compilerOptions: {
      target: 'es2024',
      module: 'nodenext',
      lib: ['es2024', 'dom', 'dom.iterable', 'dom.asynciterable'],
      types: hasNodeTypes ? ['node'] : [],
      typeRoots,
      strict: true,
      noEmit: true,
      // Node runs TypeScript by stripping the types, which these options allow for.
      allowImportingTsExtensions: true,
      erasableSyntaxOnly: true,
      verbatimModuleSyntax: true,
      resolveJsonModule: true,
      skipLibCheck: true,
      paths: { townhall: [entry.replace(/\.js$/, '.d.ts')] },
    },
  };
}

/** The folder of the package whose entry is `src/index.ts` or `dist/index.js`. */
function rootOf(entry: string): string {
  return dirname(dirname(entry));
}

function registration(entry: string): string {
  const format = entry.endsWith('.ts') ? 'module-typescript' : 'module';
  return `// Written by \`townhall link\`: resolves \`townhall\` to the installation of this machine.
import { registerHooks } from 'node:module';

const url = ${JSON.stringify(pathToFileURL(entry).href)};

registerHooks({
  resolve(specifier, context, next) {
    if (specifier !== 'townhall') return next(specifier, context);
    return { url, format: '${format}', shortCircuit: true };
  },
});
`;
}
