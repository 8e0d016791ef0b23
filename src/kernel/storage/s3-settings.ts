// The settings of a bucket, common to gateway and agent: rows for their tables, and the parsed result.
import { errorText } from '../error-text.ts';
import { optionalSwitch, optionalText, secretText, type Setting, SettingError } from '../settings.ts';
import { S3Error, isTransient, type S3Options } from './s3-client.ts';
import { s3Storage, type S3StorageOptions } from './s3-storage.ts';

/** The rows. The agent's rows have their own keys, since both servers may be started with one environment. */
export function s3Rows(prefix: '' | 'AGENT_', content: string) {
  const key = (name: string) => `${prefix}STORAGE_S3_${name}`;
  const row = (name: string, description: string, shape: Shape) =>
    withShape(optionalText(key(name), description, { flag: null }), shape);
  return {
    s3Bucket: row('BUCKET', `Bucket for ${content}, in place of the folder.`, shapes.bucket),
    s3Endpoint: row(
      'ENDPOINT',
      'Address of its S3 server; that of AWS in the region by default.',
      shapes.endpoint,
    ),
    s3Region: row('REGION', 'Its region; us-east-1 by default.', shapes.region),
    s3Prefix: row('PREFIX', 'Put before every key, such as townhall/.', shapes.prefix),
    s3KeyId: row('KEY_ID', 'Access key id for the bucket.', shapes.keyId),
    s3Secret: withShape(secretText(key('SECRET'), 'Secret of that key.'), shapes.secret),
    s3PathStyle: optionalSwitch(
      key('PATH_STYLE'),
      'Bucket in the path instead of the host name; true by default with an endpoint.',
      { flag: null },
    ),
  };
}

interface S3Values {
  s3Bucket: string | undefined;
  s3Endpoint: string | undefined;
  s3Region: string | undefined;
  s3Prefix: string | undefined;
  s3KeyId: string | undefined;
  s3Secret: string | undefined;
  s3PathStyle: boolean | undefined;
}

interface Shape {
  matches(text: string): boolean;
  description: string;
  isSecret?: boolean;
}

const shapes = {
  bucket: {
    matches: (text) => /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(text),
    description: 'the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens',
  },
  endpoint: { matches: isOrigin, description: 'an http or https address without a path' },
  region: {
    matches: (text) => /^[A-Za-z0-9-]{1,64}$/.test(text),
    description: 'a region, such as eu-central-1',
  },
  prefix: {
    matches: (text) => /^(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*\/)+$/.test(text) && text.length <= 256,
    description: 'folders of letters, digits, dots, hyphens and underscores with a slash at the end',
  },
  keyId: { matches: isWord, description: 'a key id: one word without spaces' },
  secret: { matches: isWord, description: 'a secret: one word without spaces', isSecret: true },
} satisfies Record<string, Shape>;

function isOrigin(text: string): boolean {
  return URL.canParse(text) && /^https?:\/\/[^/?#@]+\/?$/.test(text);
}

function isWord(text: string): boolean {
  return /^[\x21-\x7e]{1,512}$/.test(text);
}

function withShape(
  setting: Setting<string | undefined>,
  { matches, description, isSecret = false }: Shape,
): Setting<string | undefined> {
  return {
    ...setting,
    parse(input) {
      if (matches(input)) return input;
      throw new SettingError(`${setting.key} takes ${description}${isSecret ? '' : `, not "${input}"`}.`);
    },
  };
}

/**
 * The bucket of the settings; undefined if none is set. Throws a SettingError for a bucket without a
 * key, and for any other setting of a bucket without its name.
 */
export function s3Settings(
  prefix: '' | 'AGENT_',
  { s3Bucket, s3Endpoint, s3Region, s3Prefix, s3KeyId, s3Secret, s3PathStyle }: S3Values,
): S3Options | undefined {
  if (s3Bucket === undefined) {
    const others = [s3Endpoint, s3Region, s3Prefix, s3KeyId, s3Secret, s3PathStyle];
    if (others.every((value) => value === undefined)) return undefined;
    throw new SettingError(
      `${prefix}STORAGE_S3_BUCKET is missing, although other settings of the bucket are set.`,
    );
  }
  if (s3KeyId === undefined || s3Secret === undefined)
    throw new SettingError(
      `${prefix}STORAGE_S3_BUCKET needs ${prefix}STORAGE_S3_KEY_ID and ${prefix}STORAGE_S3_SECRET.`,
    );
  const region = s3Region ?? 'us-east-1';
  return {
    bucket: s3Bucket,
    endpoint: s3Endpoint ?? `https://s3.${region}.amazonaws.com`,
    region,
    prefix: s3Prefix ?? '',
    keyId: s3KeyId,
    secret: s3Secret,
    pathStyle: s3PathStyle ?? s3Endpoint !== undefined,
  };
}

/**
 * Reads the bucket once. Throws a SettingError that names the wrong setting if the server refuses, and an
 * Error if the server cannot be reached.
 */
export async function requireBucket(
  prefix: '' | 'AGENT_',
  { clock, ...options }: S3Options & Pick<S3StorageOptions, 'clock'>,
): Promise<void> {
  const { bucket, endpoint } = options;
  const key = (name: string) => `${prefix}STORAGE_S3_${name}`;
  try {
    await s3Storage({ ...options, clock, limits: { attempts: 2, idleMs: 5_000 } }).check();
  } catch (error) {
    const reason = errorText(error);
    if (!(error instanceof S3Error) || isTransient(error))
      throw new Error(`The S3 server at ${endpoint} (${key('ENDPOINT')}) cannot be used: ${reason}`, {
        cause: error,
      });
    if (error.status === 404)
      throw new SettingError(`${key('BUCKET')}: ${endpoint} has no bucket "${bucket}"; create it first.`);
    if (error.status === 403)
      throw new SettingError(
        `${key('KEY_ID')} and ${key('SECRET')} must be of a key that may list, read, write and delete in the bucket "${bucket}". ${reason}`,
      );
    throw new SettingError(
      `${key('BUCKET')}: ${reason} Check ${key('REGION')}, ${key('ENDPOINT')} and ${key('PATH_STYLE')}.`,
    );
  }
}
