// Profiles: named servers with the files of their credentials, for `townhall call` and the commands
// about resources. They are in ~/.config/townhall/profiles.json; a credential itself is never
// stored there.
import { rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { readTextIfExists } from '../../kernel/file-errors.ts';
import { makeFolder } from '../../kernel/folder.ts';
import { isRecord, parseJsonOrUndefined } from '../../kernel/json-value.ts';
import { SettingError } from '../../kernel/settings.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** One profile; the members are named as in the file. */
export interface Profile {
  url?: string;
  agent_url?: string;
  token_file?: string;
  admin_token_file?: string;
  agent_token_file?: string;
}

export const profileMembers = [
  'url',
  'agent_url',
  'token_file',
  'admin_token_file',
  'agent_token_file',
] as const;

/** The kinds of credentials, each with the member that names its file. */
export const tokenMembers = {
  user: 'token_file',
  admin: 'admin_token_file',
  agent: 'agent_token_file',
} as const;

export type Identity = keyof typeof tokenMembers;

export interface Profiles {
  /** The profile in use when TOWNHALL_PROFILE is not set. */
  current: string | null;
  profiles: Record<string, Profile>;
}

export function profilesFile(env: Environment): string {
  const config = env['XDG_CONFIG_HOME'] || join(env['HOME'] || homedir(), '.config');
  return join(config, 'townhall', 'profiles.json');
}

/** Throws a SettingError when the file is not a valid list of profiles. */
export async function readProfiles(env: Environment): Promise<Profiles> {
  const file = profilesFile(env);
  const text = await readTextIfExists(file);
  if (text === null) return { current: null, profiles: {} };
  const value = parseJsonOrUndefined(text);
  const { current, profiles } = isRecord(value) ? value : {};
  const isValid =
    (current === null || typeof current === 'string') &&
    isRecord(profiles) &&
    Object.values(profiles).every(isProfile);
  if (!isValid) throw new SettingError(`${file} is not a list of profiles; correct or remove it.`);
  return { current, profiles: profiles as Record<string, Profile> };
}

function isProfile(value: unknown): boolean {
  return isRecord(value) && Object.values(value).every((member) => typeof member === 'string');
}

export async function writeProfiles(env: Environment, profiles: Profiles): Promise<void> {
  await replacePrivateFile(profilesFile(env), `${JSON.stringify(profiles, null, 2)}\n`);
}

/**
 * Writes a file that only its owner can read. The finished file is renamed into place, so that a reader
 * never sees a partly written one. Creates the folder if it is missing.
 */
export async function replacePrivateFile(file: string, text: string): Promise<void> {
  await makeFolder(dirname(file));
  const temporaryFile = `${file}.${process.pid}.tmp`;
  try {
    await writeFile(temporaryFile, text, { mode: 0o600 });
    await rename(temporaryFile, file);
  } catch (error) {
    await rm(temporaryFile, { force: true });
    throw error;
  }
}

/** The profile in use, if any. Throws a SettingError when TOWNHALL_PROFILE names a missing profile. */
export async function readCurrentProfile(
  env: Environment,
): Promise<{ name: string; profile: Profile } | undefined> {
  const { current, profiles } = await readProfiles(env);
  const name = env['TOWNHALL_PROFILE'] || current;
  if (name === null) return undefined;
  return { name, profile: requireProfile(profiles, name) };
}

/** Throws a SettingError when no profile has the name. */
export function requireProfile(profiles: Readonly<Record<string, Profile>>, name: string): Profile {
  const profile = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
  if (profile === undefined)
    throw new SettingError(`there is no profile "${name}"; "townhall profile list" shows them.`);
  return profile;
}

/** Throws a SettingError for an invalid profile name. The name becomes part of file names. */
export function requireProfileName(name: string): void {
  if (!/^[\w.-]{1,64}$/.test(name) || name === '__proto__')
    throw new SettingError(
      `"${name}" is not a profile name: use letters, digits, "-", "_" and ".", at most 64.`,
    );
}
