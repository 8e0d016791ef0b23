// `townhall init NAME`: creates a project that deploys as it is.
import { makeProject } from '../../deploy/index.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';

export const command: Command = {
  description: [
    'Creates the folder NAME with a project: its declaration, a package.json, and an entry with one service.',
    'You can deploy it at once, without installing anything: cd NAME && townhall deploy',
  ],
  actions: [
    action({
      arguments: { path: { placeholder: 'NAME' } },
      options: { json: jsonOption },
      async run({ arguments: { path }, options, print }) {
        const { directory, name, files } = await makeProject(path);
        if (options.json) print(JSON.stringify({ name, directory, files }));
        else {
          print(`Made ${name} in ${directory}:`);
          for (const file of files) print(`  ${file}`);
          print('');
          print(`Deploy it: cd ${path} && townhall deploy`);
        }
        return 0;
      },
    }),
  ],
};
