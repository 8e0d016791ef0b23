// `townhall logout`: revokes the token that `townhall login` stored, and deletes it from this machine.
import { rm } from 'node:fs/promises';
import { GatewayError } from '@townhall/gateway';
import { readTextIfExists } from '../../kernel/file-errors.ts';
import { SettingError } from '../../kernel/settings.ts';
import { readProfiles, tokenMembers, writeProfiles } from '../call/profiles.ts';
import { action, jsonOption, type Command } from '../command-line/command.ts';
import { chooseServer, gatewayClient } from '../login/server.ts';
import { tokenPath } from '../login/token-file.ts';

export const command: Command = {
  description: [
    'Revokes the user token of a profile at the gateway, with the API keys that it created, and deletes it from this machine.',
    "With --admin it ends the administrator's session of the profile instead.",
  ],
  actions: [
    action({
      options: {
        profile: { kind: 'value', placeholder: 'NAME', summary: 'The profile; by default the one in use.' },
        admin: { kind: 'switch', summary: "End the administrator's session instead." },
        json: jsonOption,
      },
      async run({ options, env, print, printError }) {
        const { name, profile } = await chooseServer({ url: undefined, profile: options.profile }, env);
        const identity = options.admin ? 'admin' : 'user';
        const { url, [tokenMembers[identity]]: file, ...rest } = profile;
        if (url === undefined || file === undefined)
          throw new SettingError(
            options.admin
              ? `the profile "${name}" has no administrator's token; "townhall login --admin" creates one.`
              : `the profile "${name}" has no user token; "townhall login" creates one.`,
          );
        const token = ((await readTextIfExists(file)) ?? '').trim();
        if (token !== '') await revoke(gatewayClient(url, token)[serviceOf[identity]], printError);
        // Keep a file that `townhall login` did not write.
        if (file === tokenPath(env, name, identity)) await rm(file, { force: true });
        const list = await readProfiles(env);
        await writeProfiles(env, { ...list, profiles: { ...list.profiles, [name]: { ...rest, url } } });
        print(options.json ? JSON.stringify({ url, profile: name }) : `You are logged out at ${url}.`);
        return 0;
      },
    }),
  ],
};

/** The service whose `logout` ends the token of each identity. */
const serviceOf = { user: 'accounts', admin: 'admin' } as const;

/** Throws when the server does not answer. For a token that is no longer valid it only prints a note. */
async function revoke(
  session: { logout(): Promise<unknown> },
  printError: (line: string) => void,
): Promise<void> {
  try {
    await session.logout();
  } catch (error) {
    if (!GatewayError.isInstance(error) || error.status !== 401) throw error;
    printError('The token was no longer valid.');
  }
}
