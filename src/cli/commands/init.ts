// `townhall init NAME`: creates a project that can be deployed at once, or a plugin with a test.
import { makePlugin, makeProject } from '../../deploy/index.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';

export const command: Command = {
  description: [
    'Creates the folder NAME with a project: its declaration, a package.json, and an entry with one service.',
    'You can deploy it at once, without installing anything: cd NAME && townhall deploy',
    'With --plugin it creates a plugin of an agent, with one action and its test: cd NAME && npm test',
  ],
  actions: [
    action({
      arguments: { path: { placeholder: 'NAME' } },
      options: {
        plugin: { kind: 'switch', summary: 'Create a plugin instead of a project.' },
        json: jsonOption,
      },
      async run({ arguments: { path }, options, print }) {
        const { directory, name, files } = await (options.plugin ? makePlugin(path) : makeProject(path));
        if (options.json) {
          print(JSON.stringify({ name, directory, files }));
          return 0;
        }
        print(`Created ${name} in ${directory}:`);
        for (const file of files) print(`  ${file}`);
        print('');
        print(
          options.plugin ? `Test it: cd ${path} && npm test` : `Deploy it: cd ${path} && townhall deploy`,
        );
        if (options.plugin) print(`Run it:  cd ${path} && townhall start --plugin src/index.ts --watch`);
        return 0;
      },
    }),
  ],
};
