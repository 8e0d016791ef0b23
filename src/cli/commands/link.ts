// `townhall link`: lets editors, tsc and tests find `townhall` from a project or a plugin.
import { linkInstallation } from '../../deploy/index.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';

export const command: Command = {
  description: [
    'Writes .townhall/tsconfig.json and .townhall/register.js into the folder of a project or a plugin, so that',
    'editors, tsc and node --test resolve "townhall" to this installation. Run it after a clone and after you have',
    'moved the installation. "townhall init" does it for a new folder.',
  ],
  actions: [
    action({
      arguments: { path: { placeholder: 'DIR', isOptional: true } },
      options: { json: jsonOption },
      async run({ arguments: { path = '.' }, options, print }) {
        const files = await linkInstallation(path);
        if (options.json) print(JSON.stringify({ files }));
        else for (const file of files) print(`Wrote ${file}`);
        return 0;
      },
    }),
  ],
};
