// The project that `townhall init` creates; it can be deployed unchanged.
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { id } from '../kernel/ids.ts';
import { declarationSchema } from './declaration.ts';

const nameShape = /^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$/;

/** Creates the project. Throws when the folder exists and is not empty. */
export async function makeProject(
  path: string,
): Promise<{ directory: string; name: string; files: string[] }> {
  const directory = resolve(path);
  const name = basename(directory);
  if (!nameShape.test(name))
    throw new Error(
      `"${name}" is not a valid project name: letters, digits, \`.\`, \`_\` and \`-\`, 50 at most, starting with a letter or a digit.`,
    );
  const entries = await readdir(directory).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  });
  if (entries.length > 0)
    throw new Error(
      `${directory} is not empty (${entries.slice(0, 3).join(', ')}${entries.length > 3 ? ', …' : ''}); a project needs a new folder.`,
    );
  const files = filesOf(name);
  for (const [file, text] of Object.entries(files)) {
    const target = join(directory, file);
    await mkdir(dirname(target), {
      recursive: true,
      ...(file.startsWith('.townhall') ? { mode: 0o700 } : {}),
    });
    await writeFile(target, text, { flag: 'wx' });
  }
  return { directory, name, files: Object.keys(files) };
}

function filesOf(name: string): Record<string, string> {
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
    'src/index.ts': entry,
    '.gitignore': '.townhall/\nnode_modules/\n',
    'README.md': readme(name),
    // A deployment writes it to the same path; editors find it before the first one.
    '.townhall/townhall.schema.json': json(declarationSchema),
  };
}

const entry = `import { defineService, type ActionCall } from 'townhall';

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
    // Without a list it is for users alone: POST /v1/hello/me
    me: {
      method: 'POST',
      input: {
        type: 'object',
        properties: { greeting: { type: 'string', maxLength: 100 } },
        additionalProperties: false,
      },
      run: ({ input, user }: ActionCall<{ greeting?: string }>) => ({
        message: \`\${input.greeting ?? 'Hello'}, \${user?.displayName ?? 'you'}.\`,
        user_id: user?.userId,
      }),
    },
  },
});
`;

function readme(name: string): string {
  return `# ${name}
A Townhall project: a model gateway with services of its own. Nothing needs to be installed in it.

\`\`\`sh
townhall deploy --dry-run   # what a deployment would do
townhall deploy             # do it; the version in package.json is raised by one
townhall city status        # what runs
townhall city rollback      # the version before
townhall city stop
\`\`\`

\`\`\`sh
curl http://127.0.0.1:43127/health
curl http://127.0.0.1:43127/v1/hello/world
townhall admin setup        # the first administrator
\`\`\`

\`townhall.json\` declares the project, \`src/index.ts\` exports its services. While you write, \`townhall gateway --project .\`
serves them in the foreground. What a deployment keeps (versions, data, log) is in \`.townhall/\`.
`;
}

function json(document: object): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}
