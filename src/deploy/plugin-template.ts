// The files of the plugin that `townhall init --plugin` creates. Its test passes unchanged.

/** The texts of the files by path, relative to the plugin's folder. `name` must be a valid plugin name. */
export function pluginFiles(name: string): Record<string, string> {
  return {
    'package.json': json({
      name,
      version: '0.1.0',
      private: true,
      type: 'module',
      scripts: {
        start: 'townhall start --plugin src/index.ts --watch',
        test: 'node --import ./.townhall/register.js --test',
      },
    }),
    'tsconfig.json': json({ extends: './.townhall/tsconfig.json', include: ['src'] }),
    'src/index.ts': plugin(name),
    'src/index.test.ts': test,
    '.gitignore': '.townhall/\ndata/\nnode_modules/\n',
    'README.md': readme(name),
  };
}

function plugin(name: string): string {
  return `import { definePlugin } from 'townhall';

export const plugin = definePlugin({
  name: '${name}',
  title: '${name}',
  description: 'Rolls dice.',
  actions: {
    // The model sees this action as the tool "${name}_roll".
    roll: {
      description: 'Rolls dice and returns the numbers.',
      readOnly: true,
      // Allows: townhall agent call ${name} roll '{"sides": 20}'
      command: true,
      input: {
        type: 'object',
        properties: {
          sides: { type: 'integer', minimum: 2, maximum: 1000 },
          count: { type: 'integer', minimum: 1, maximum: 100 },
        },
        required: ['sides'],
        additionalProperties: false,
      },
      async run({ sides, count = 1 }) {
        const rolls = Array.from({ length: count }, () => 1 + Math.floor(Math.random() * sides));
        return { rolls, sum: rolls.reduce((sum, roll) => sum + roll, 0) };
      },
    },
  },
});
`;
}

const test = `import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startPlugin } from 'townhall';
import { plugin } from './index.ts';

test('rolls the requested number of dice', async () => {
  const started = await startPlugin(plugin);
  const { rolls, sum } = (await started.call('roll', { sides: 2, count: 50 })) as {
    rolls: number[];
    sum: number;
  };
  assert.equal(rolls.length, 50);
  assert.ok(rolls.every((roll) => roll === 1 || roll === 2));
  assert.equal(sum, rolls.reduce((total, roll) => total + roll, 0));
});

test('refuses a die with one side', async () => {
  const started = await startPlugin(plugin);
  await assert.rejects(started.call('roll', { sides: 1 }), /sides/);
});
`;

function readme(name: string): string {
  return `# ${name}
A plugin of a Townhall agent. Nothing needs to be installed in its folder.

\`\`\`sh
npm test                                           # runs src/index.test.ts
townhall start --plugin src/index.ts --watch       # restarts after each change
townhall agent call ${name} roll '{"sides": 20}'     # from another terminal
\`\`\`

Editors and tests find \`townhall\` on this machine through files in \`.townhall/\`. After a clone, write them with
\`townhall link\`.
`;
}

function json(document: object): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}
