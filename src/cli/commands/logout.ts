// `townhall logout`: ends the token that `townhall login` stored, at the server and on this machine.
import { readFile, rm } from 'node:fs/promises';
import { GatewayError } from '@townhall/gateway';
import { SettingError } from '../../kernel/settings.ts';
import { readProfiles, writeProfiles } from '../call/profiles.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';
import { chooseServer, gatewayClient } from '../login/server.ts';
import { tokenPath } from '../login/token-file.ts';

export const command: Command = {
  description: [
    'Ends the user token of a profile at the gateway, with the API keys that it created, and removes it from this machine.',
  ],
  actions: [
    action({
      options: {
        profile: { kind: 'value', placeholder: 'NAME', summary: 'The profile; else the one in use.' },
        json: jsonOption,
      },
      async run({ options, env, print, printError }) {
        const { name, profile } = await chooseServer({ url: undefined, profile: options.profile }, env);
        const { url, token_file: file } = profile;
        if (url === undefined || file === undefined)
          throw new SettingError(`the profile "${name}" has no user token; "townhall login" creates one.`);
        const token = (await readFile(file, 'utf8').catch(() => '')).trim();
        if (token !== '') await revoke(url, token, printError);
        // Keep a file that `townhall login` did not write.
        if (file === tokenPath(env, name, 'user')) await rm(file, { force: true });
        const list = await readProfiles(env);
        const { token_file: _file, ...rest } = profile;
        await writeProfiles(env, { ...list, profiles: { ...list.profiles, [name]: rest } });
        print(options.json ? JSON.stringify({ url, profile: name }) : `You are logged out at ${url}.`);
        return 0;
      },
    }),
  ],
};

/** Throws when the server does not answer. A token that has ended already only prints a note. */
async function revoke(url: string, token: string, printError: (line: string) => void): Promise<void> {
  try {
    await gatewayClient(url, token).accounts.logout();
  } catch (error) {
    if (!GatewayError.isInstance(error) || error.status !== 401) throw error;
    printError('The token had ended already.');
  }
}
