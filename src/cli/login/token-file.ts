// The files of credentials beside the profiles: `tokens/PROFILE.user.token`, readable by their owner only.
import { rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeFolder } from '../../kernel/folder.ts';
import { profilesFile, readProfiles, writeProfiles, type Environment } from '../call/profiles.ts';

/** The names of a profile's credentials, each for its own identity. */
export type Identity = 'user' | 'admin' | 'agent';

export function tokenPath(env: Environment, profile: string, identity: Identity): string {
  return join(dirname(profilesFile(env)), 'tokens', `${profile}.${identity}.token`);
}

/** The member of a profile with the path of the file. */
export const tokenMembers = {
  user: 'token_file',
  admin: 'admin_token_file',
  agent: 'agent_token_file',
} as const;

/** Writes the token of a login and puts the profile into use. */
export async function storeLogin(
  env: Environment,
  { url, name }: { url: string; name: string },
  { identity, token }: { identity: Identity; token: string },
): Promise<void> {
  const file = tokenPath(env, name, identity);
  await writeToken(file, token);
  const { profiles } = await readProfiles(env);
  const profile = { ...profiles[name], url, [tokenMembers[identity]]: file };
  await writeProfiles(env, { current: name, profiles: { ...profiles, [name]: profile } });
}

/** Replaces the file in one step, so that a reader never sees a part of the token. */
async function writeToken(file: string, token: string): Promise<void> {
  await makeFolder(dirname(file));
  const temporaryFile = `${file}.${process.pid}.tmp`;
  try {
    await writeFile(temporaryFile, `${token}\n`, { mode: 0o600 });
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true });
    throw error;
  }
}
