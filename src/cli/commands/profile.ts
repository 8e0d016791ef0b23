// `townhall profile`: named servers for `townhall call` and the commands about resources.
import { resolve } from 'node:path';
import { SettingError } from '../../kernel/settings.ts';
import {
  profileMembers,
  readProfiles,
  requireProfile,
  requireProfileName,
  writeProfiles,
  type Profile,
} from '../call/profiles.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';
import { alignColumns } from '../command-line/columns.ts';

export const command: Command = {
  description: [
    'Names servers, so that commands such as "townhall users list" need no address and no token. A profile has addresses',
    'and the files of credentials, never a credential. It applies when neither --url nor TOWNHALL_URL names a server.',
  ],
  actions: [
    action({
      path: 'list',
      summary: 'The profiles; * marks the one in use.',
      options: { json: jsonOption },
      async run({ options, env, print, printError }) {
        const list = await readProfiles(env);
        const currentName = env['TOWNHALL_PROFILE'] || list.current;
        if (options.json) {
          print(JSON.stringify({ ...list, current: currentName }));
          return 0;
        }
        const rows = Object.entries(list.profiles).map(([name, { url = '-', agent_url: agentUrl = '-' }]) => [
          name === currentName ? '*' : ' ',
          name,
          url,
          agentUrl,
        ]);
        if (rows.length === 0)
          printError('There is no profile; "townhall profile set NAME --url URL" creates one.');
        for (const line of alignColumns(rows)) print(line);
        return 0;
      },
    }),
    action({
      path: 'set',
      summary: 'Creates or changes a profile and uses it.',
      arguments: { name: { placeholder: 'NAME' } },
      options: {
        url: { kind: 'value', placeholder: 'URL', summary: 'The gateway.' },
        'agent-url': { kind: 'value', placeholder: 'URL', summary: 'The agent.' },
        'token-file': { kind: 'value', placeholder: 'FILE', summary: "The user's token." },
        'admin-token-file': { kind: 'value', placeholder: 'FILE', summary: "The administrator's token." },
        'agent-token-file': { kind: 'value', placeholder: 'FILE', summary: "The agent's token." },
      },
      async run({ arguments: { name }, options, env, printError }) {
        requireProfileName(name);
        const { profiles } = await readProfiles(env);
        const profile: Profile = { ...profiles[name] };
        for (const member of profileMembers) {
          const value = options[member.replaceAll('_', '-') as keyof typeof options];
          if (value !== undefined)
            profile[member] = member.endsWith('_file') ? resolve(value) : requireUrl(value);
        }
        await writeProfiles(env, { current: name, profiles: { ...profiles, [name]: profile } });
        printError(`The profile "${name}" is in use.`);
        return 0;
      },
    }),
    action({
      path: 'use',
      summary: 'Uses another profile.',
      arguments: { name: { placeholder: 'NAME' } },
      async run({ arguments: { name }, env }) {
        const list = await readProfiles(env);
        requireProfile(list.profiles, name);
        await writeProfiles(env, { ...list, current: name });
        return 0;
      },
    }),
    action({
      path: 'remove',
      summary: 'Removes a profile; the files that it names are kept.',
      arguments: { name: { placeholder: 'NAME' } },
      async run({ arguments: { name }, env }) {
        const { current, profiles } = await readProfiles(env);
        requireProfile(profiles, name);
        const rest = Object.fromEntries(
          Object.entries(profiles).filter(([profileName]) => profileName !== name),
        );
        await writeProfiles(env, { current: current === name ? null : current, profiles: rest });
        return 0;
      },
    }),
  ],
  notes: [
    'TOWNHALL_PROFILE in the environment names the profile of one shell.',
    '',
    '  townhall profile set production --url https://models.example.com --token-file ~/.townhall/user.token',
  ],
};

function requireUrl(text: string): string {
  if (/^https?:$/.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new SettingError(`"${text}" is not an address such as http://127.0.0.1:43127.`);
}
