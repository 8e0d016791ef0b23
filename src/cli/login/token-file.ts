// The credential files beside profiles.json, such as `tokens/PROFILE.user.token`. Only the owner can read
// them.
import { dirname, join } from 'node:path';
import {
  profilesFile,
  readProfiles,
  replacePrivateFile,
  tokenMembers,
  writeProfiles,
  type Environment,
  type Identity,
} from '../call/profiles.ts';

export function tokenPath(env: Environment, profile: string, identity: Identity): string {
  return join(dirname(profilesFile(env)), 'tokens', `${profile}.${identity}.token`);
}

/**
 * Writes the token of a login and makes its profile the current one. If the profile had another gateway, its
 * other credentials of that gateway are dropped, so that they are never sent to this one.
 */
export async function storeLogin(
  env: Environment,
  { url, name }: { url: string; name: string },
  { identity, token }: { identity: Identity; token: string },
): Promise<void> {
  const file = tokenPath(env, name, identity);
  await replacePrivateFile(file, `${token}\n`);
  const { profiles } = await readProfiles(env);
  const { token_file: userFile, admin_token_file: adminFile, ...rest } = profiles[name] ?? {};
  const credentials =
    profiles[name]?.url === url
      ? {
          ...(userFile === undefined ? {} : { token_file: userFile }),
          ...(adminFile === undefined ? {} : { admin_token_file: adminFile }),
        }
      : {};
  const profile = { ...rest, ...credentials, url, [tokenMembers[identity]]: file };
  await writeProfiles(env, { current: name, profiles: { ...profiles, [name]: profile } });
}
