// Writes the folders that `townhall init` creates: a project, which can be deployed unchanged, or a plugin
// with a test.
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { isSingleExecutable } from '../kernel/assets.ts';
import { isMissing } from '../kernel/file-errors.ts';
import { id } from '../kernel/ids.ts';
import { declarationSchema } from './declaration.ts';
import { linkInstallation } from './link.ts';
import { pluginFiles } from './plugin-template.ts';

const projectName = {
  shape: /^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$/,
  rule: 'letters, digits, `.`, `_` and `-`, 50 at most, starting with a letter or a digit',
};
const pluginName = {
  shape: /^[a-z][a-z0-9-]{0,30}$/,
  rule: 'lower-case letters, digits and hyphens, 31 at most, starting with a letter',
};

interface NewFolder {
  directory: string;
  name: string;
  /** Relative to the folder. */
  files: string[];
}

/** Creates a project. Throws when the folder exists and is not empty. */
export async function makeProject(path: string): Promise<NewFolder> {
  const name = requireName(path, { ...projectName, noun: 'project' });
  return writeFolder(path, name, projectFiles(name));
}

/** Creates a plugin with a test. Throws when the folder exists and is not empty. */
export async function makePlugin(path: string): Promise<NewFolder> {
  const name = requireName(path, { ...pluginName, noun: 'plugin' });
  return writeFolder(path, name, pluginFiles(name));
}

function requireName(path: string, { shape, rule, noun }: { shape: RegExp; rule: string; noun: string }) {
  const name = basename(resolve(path));
  if (!shape.test(name)) throw new Error(`"${name}" is not a valid ${noun} name: ${rule}.`);
  return name;
}

async function writeFolder(
  path: string,
  name: string,
  files: Readonly<Record<string, string>>,
): Promise<NewFolder> {
  const directory = resolve(path);
  const entries = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  if (entries.length > 0)
    throw new Error(
      `${directory} is not empty (${entries.slice(0, 3).join(', ')}${entries.length > 3 ? ', …' : ''}); use a new folder.`,
    );
  for (const [file, text] of Object.entries(files)) {
    const target = join(directory, file);
    await mkdir(dirname(target), {
      recursive: true,
      ...(file.startsWith('.townhall') ? { mode: 0o700 } : {}),
    });
    await writeFile(target, text, { flag: 'wx' });
  }
  const links = isSingleExecutable ? [] : await linkInstallation(directory);
  return { directory, name, files: [...Object.keys(files), ...links] };
}

function projectFiles(name: string): Record<string, string> {
  return {
    'townhall.json': json({
      $schema: './.townhall/townhall.schema.json',
      schema: 1,
      type: 'city',
      id: id('cty'),
      name,
      entry: 'src/index.ts',
      deployment: { target: 'local' },
    }),
    'package.json': json({
      name: name.toLowerCase(),
      version: '0.1.0',
      private: true,
      type: 'module',
      scripts: { deploy: 'townhall deploy' },
    }),
    'tsconfig.json': json({ extends: './.townhall/tsconfig.json', include: ['src'] }),
    'src/index.ts': entry,
    '.gitignore': '.townhall/\nnode_modules/\n',
    'README.md': readme(name),
    // A deployment also writes it there; editors need it before the first deployment.
    '.townhall/townhall.schema.json': json(declarationSchema),
  };
}

const entry = `import { defineService } from 'townhall';

export const hello = defineService({
  id: 'hello',
  name: 'Hello',
  actions: {
    // An empty list of identities admits everyone: GET /v1/hello/world
    world: {
      method: 'GET',
      identities: [],
      run: () => ({ message: 'Hello, world.' }),
    },
    // Without a list, only users can call it: POST /v1/hello/me
    me: {
      method: 'POST',
      input: {
        type: 'object',
        properties: { greeting: { type: 'string', maxLength: 100 } },
        additionalProperties: false,
      },
      run: ({ input, user }) => ({
        message: \`\${input.greeting ?? 'Hello'}, \${user?.displayName ?? 'you'}.\`,
        user_id: user?.userId,
      }),
    },
  },
});
`;

function readme(name: string): string {
  return `# ${name}
A Townhall project: a model gateway with its own services. Nothing needs to be installed in it.

\`\`\`sh
townhall deploy --dry-run   # what a deployment would do
townhall deploy             # deploys; raises the version in package.json by one
townhall city status        # what is running
townhall city rollback      # returns to the previous version
townhall city stop
\`\`\`

\`\`\`sh
curl http://127.0.0.1:43127/health
curl http://127.0.0.1:43127/v1/hello/world
townhall admin setup        # the first administrator
\`\`\`

\`townhall.json\` declares the project, \`src/index.ts\` exports its services. While you write, \`townhall gateway --project . --watch\`
serves them in the foreground and restarts after a change. \`.townhall/\` contains what a deployment keeps (versions, data,
log), and the files with which editors find the types of \`townhall\`: after a clone, write these with \`townhall link\`.
`;
}

function json(document: object): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}
