// `townhall init NAME`: a new project that deploys at once.
import { makeProject } from '../../deploy/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';

export const initCommand: Command = {
  help: () =>
    [
      'Usage: townhall init NAME [OPTIONS]',
      '',
      'Makes the folder NAME with a project in it: its declaration, a package.json, and an entry with one service.',
      'It deploys as it is, and nothing has to be installed: cd NAME && townhall deploy',
      '',
      '  --json                 print the result as JSON',
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, { flags: [], switches: ['json'] });
    const [path, ...surplus] = words;
    if (path === undefined || surplus.length > 0)
      throw new SettingError('say "townhall init NAME"; see --help.');
    const { directory, name, files } = await makeProject(path);
    if (flags['json'] === 'true') input.print(JSON.stringify({ name, directory, files }));
    else {
      input.print(`Made ${name} in ${directory}:`);
      for (const file of files) input.print(`  ${file}`);
      input.print('');
      input.print(`Deploy it: cd ${path} && townhall deploy`);
    }
    return 0;
  },
};
