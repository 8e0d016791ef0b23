// The gateway's settings: one table, read once at start from flags and environment.
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { errorText } from '../kernel/error-text.ts';
import { s3Rows, s3Settings, requireBucket } from '../kernel/storage/s3-settings.ts';
import { requireFolder } from '../kernel/folder.ts';
import { trustProxies } from '../kernel/http/proxies.ts';
import { passwordError } from '../kernel/secrets/password.ts';
import {
  SettingError,
  choice,
  integer,
  list,
  optionalInteger,
  optionalSwitch,
  optionalText,
  postgresUrl,
  rate,
  readSettings,
  secretText,
  text,
} from '../kernel/settings.ts';
import { telemetryRows, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { adminIdError } from './identity.ts';

const dayMs = 24 * 60 * 60 * 1000;
const deadlineRange = { min: 1, max: dayMs };

/** Every setting of `townhall gateway`; `--help` is generated from it. */
export const gatewaySettings = {
  host: text('HOST', '0.0.0.0', 'Address to listen on.'),
  port: integer('PORT', 43127, 'Port to listen on; 0 takes any free one.', { min: 0, max: 65535 }),
  workers: integer(
    'WORKERS',
    1,
    'Number of processes that serve together on this machine; more than 1 needs DATABASE_URL.',
    {
      min: 1,
      max: 64,
    },
  ),
  // The URL contains the password of the database, so it has no flag.
  databaseUrl: postgresUrl('DATABASE_URL', 'PostgreSQL to use instead of the embedded database.', {
    flag: null,
  }),
  databasePath: text('DATABASE_PATH', './data/townhall.db', 'Folder of the embedded database.'),
  databasePrepare: optionalSwitch(
    'DATABASE_PREPARE',
    'Prepared statements; false behind a transaction-mode pooler.',
  ),
  masterKey: secretText(
    'TOWNHALL_MASTER_KEY',
    'Key that encrypts stored secrets: 32 bytes in base64. Needed with DATABASE_URL.',
  ),
  masterKeyFile: optionalText('TOWNHALL_MASTER_KEY_FILE', 'File with that key, instead of the key itself.'),
  masterKeyPrevious: secretText(
    'TOWNHALL_MASTER_KEY_PREVIOUS',
    'The previous key, until "townhall env rewrap" has run.',
  ),
  masterKeyPreviousFile: optionalText(
    'TOWNHALL_MASTER_KEY_PREVIOUS_FILE',
    'File with that key, instead of the key itself.',
  ),
  adminId: optionalText('ADMIN_ID', 'ID of the first administrator; ignored once there is an administrator.'),
  adminPassword: secretText('ADMIN_PASSWORD', "The first administrator's password, 12 characters or more."),
  localLogin: optionalSwitch(
    'LOCAL_LOGIN',
    'false turns off the login without credentials of the local edition.',
  ),
  project: optionalText('TOWNHALL_PROJECT', 'Folder of a project whose services are served too.', {
    flag: 'project',
  }),
  modelsFile: optionalText(
    'MODELS_FILE',
    'JSON file with providers and models of your own; read again on change.',
  ),
  modelsCatalogFile: optionalText(
    'MODELS_CATALOG_FILE',
    'Catalog that "townhall models update" writes; in the folder of the embedded database. Read again on change.',
  ),
  modelsCatalogKeys: list(
    'MODELS_CATALOG_KEYS',
    'Public keys of the publishers whose catalogs "townhall models update" accepts, separated by commas.',
  ),
  localModels: choice(
    'LOCAL_MODELS',
    ['on', 'off'],
    'on',
    'off removes the models that run in this process from the catalog.',
  ),
  storagePath: optionalText(
    'STORAGE_PATH',
    'Folder for images and videos; in the folder of the embedded database, or ./data/media.',
  ),
  ...s3Rows('', 'images and videos'),
  mediaLinkSeconds: integer('MEDIA_LINK_SECONDS', 3_600, 'Lifetime of a link to an image or a video.', {
    min: 1,
    max: 7 * 24 * 3600,
  }),
  mediaQuotaMb: integer(
    'MEDIA_QUOTA_MB',
    4_096,
    'Storage for the images and videos of one user, in MiB; above it, the oldest are deleted.',
    { min: 1, max: 2 ** 30 },
  ),
  answersQuotaMb: integer(
    'ANSWERS_QUOTA_MB',
    16,
    "Storage for one user's answers to requests with an Idempotency-Key, in MiB; above it, the oldest are deleted.",
    { min: 1, max: 2 ** 20 },
  ),
  responsesKeepHours: integer(
    'RESPONSES_KEEP_HOURS',
    720,
    'Lifetime of responses with "store": true, in hours.',
    { min: 1, max: 24 * 3_650 },
  ),
  responsesQuotaMb: integer(
    'RESPONSES_QUOTA_MB',
    64,
    'Storage for the responses of one user, in MiB; above it, the oldest are deleted.',
    { min: 1, max: 2 ** 20 },
  ),
  responsesRejoinMs: integer(
    'RESPONSES_REJOIN_MS',
    60_000,
    'How long a streamed response with an Idempotency-Key continues without a reader.',
    { min: 0, max: 600_000 },
  ),
  videoPollMs: integer('VIDEO_POLL_MS', 5_000, 'Interval at which a provider is polled for a video.', {
    min: 10,
    max: 600_000,
  }),
  videoMaxBytes: integer(
    'VIDEO_MAX_BYTES',
    512 * 1024 * 1024,
    'Size limit for a video from a provider, in bytes.',
    { min: 1, max: 2 ** 40 },
  ),
  startingCredits: optionalInteger(
    'STARTING_CREDITS',
    'Credits of a new user: 1,000,000 in the local edition, else 0. The Bureau may set its own.',
    { min: 0, max: 1e12 },
  ),
  usageDays: integer('USAGE_DAYS', 400, 'How long usage records are kept, in days.', { min: 1, max: 3_650 }),
  journal: choice(
    'JOURNAL',
    ['on', 'off'],
    'on',
    'off makes each charge wait for the database instead of a synced file; calls that run during a crash are then not charged.',
  ),
  journalPath: optionalText(
    'JOURNAL_PATH',
    'Folder of the journal of charges; in the folder of the embedded database, or ./data/journal.',
  ),
  cityBaseUrl: optionalText('TOWNHALL_CITY_BASE_URL', 'The address under which users reach this server.'),
  corsOrigins: list('CORS_ORIGINS', 'Origins whose pages may call this server, separated by commas.'),
  trustedProxies: list(
    'TRUSTED_PROXIES',
    'Addresses or networks of proxies whose X-Forwarded-For is trusted, separated by commas.',
  ),
  rateUser: rate(
    'RATE_LIMIT_USER',
    600,
    'Requests per minute of one user; off removes this limit and the limit on connections.',
  ),
  rateAdmin: rate(
    'RATE_LIMIT_ADMIN',
    300,
    'Requests per minute of one administrator session; off removes this limit.',
  ),
  rateGuest: rate(
    'RATE_LIMIT_GUEST',
    60,
    'Requests per minute of one address without a credential; off removes this limit and the limit on connections.',
  ),
  rateLogin: rate(
    'RATE_LIMIT_LOGIN',
    10,
    'Login attempts per minute of one address; off removes this limit, but not the limits on wrong passwords and codes.',
  ),
  logLevel: choice('LOG_LEVEL', ['debug', 'info', 'warn', 'error', 'silent'], 'info', 'How much is logged.'),
  ...telemetryRows({ prefix: '', serviceName: 'townhall-gateway' }),
  connectMs: integer(
    'TIMEOUT_CONNECT_MS',
    5_000,
    'Deadline for a connection to a model provider.',
    deadlineRange,
  ),
  firstByteMs: integer(
    'TIMEOUT_FIRST_BYTE_MS',
    60_000,
    "Deadline for a streamed answer's first byte.",
    deadlineRange,
  ),
  answerMs: integer(
    'TIMEOUT_ANSWER_MS',
    600_000,
    'Deadline for the first byte of an answer that is not streamed.',
    deadlineRange,
  ),
  idleMs: integer(
    'TIMEOUT_IDLE_MS',
    60_000,
    'Longest silence between two chunks of a streamed answer.',
    deadlineRange,
  ),
  streamMs: integer('TIMEOUT_STREAM_MS', 1_800_000, 'Longest streamed answer.', deadlineRange),
  videoMs: integer('TIMEOUT_VIDEO_MS', 2_700_000, 'Longest wait for one video.', deadlineRange),
  actionMs: integer(
    'TIMEOUT_ACTION_MS',
    60_000,
    "Longest run of an action of a project's service.",
    deadlineRange,
  ),
  headersMs: integer('TIMEOUT_HEADERS_MS', 10_000, "Deadline for a request's headers.", deadlineRange),
  requestMs: integer('TIMEOUT_REQUEST_MS', 30_000, 'Deadline for a whole request.', deadlineRange),
  stalledMs: integer(
    'TIMEOUT_STALLED_MS',
    60_000,
    'A client that reads nothing for this long is disconnected.',
    deadlineRange,
  ),
  heartbeatMs: integer(
    'TIMEOUT_HEARTBEAT_MS',
    15_000,
    'Interval between the heartbeat comments on a silent stream.',
    deadlineRange,
  ),
  drainMs: integer(
    'TIMEOUT_DRAIN_MS',
    25_000,
    'How long running answers may continue after the server is told to stop.',
    deadlineRange,
  ),
};

/** Whether a key is read only at startup, so that a stored value would have no effect. */
export function isStartupKey(key: string): boolean {
  // The server reads this key at every use, so a stored value takes effect.
  if (key === gatewaySettings.cityBaseUrl.key) return false;
  return startupKeys.has(key) || key.startsWith('TOWNHALL_');
}

/** Why the gateway cannot use a stored value, continuing a sentence that starts with "the value"; or null. */
export function explainUnusableValue(key: string, value: string): string | null {
  return key === gatewaySettings.cityBaseUrl.key ? explainUnusableBaseUrl(value) : null;
}

const startupKeys: ReadonlySet<string> = new Set([
  ...Object.values(gatewaySettings).map((setting) => setting.key),
  'HTTPS_PROXY',
  'HTTP_PROXY',
  'NO_PROXY',
  'NODE_OPTIONS',
  'NODE_EXTRA_CA_CERTS',
]);

/** The settings of a gateway. */
export type GatewayConfig = ReturnType<typeof readSettings<typeof gatewaySettings>>;

/** Reads and checks the settings. Throws a SettingError that names the unusable setting. */
export function readGatewayConfig(
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): GatewayConfig {
  const config = readSettings(gatewaySettings, flags, env);
  if ((config.adminId === undefined) !== (config.adminPassword === undefined)) {
    throw new SettingError('ADMIN_ID and ADMIN_PASSWORD must be set together; set both or neither.');
  }
  if (config.adminId !== undefined && config.adminPassword !== undefined)
    requireCredentials(config.adminId, config.adminPassword);
  if (config.databaseUrl !== undefined && config.localLogin === true) {
    throw new SettingError('LOCAL_LOGIN=true works only with the embedded database, not with DATABASE_URL.');
  }
  if (config.workers > 1 && config.databaseUrl === undefined) {
    throw new SettingError(
      'WORKERS above 1 needs PostgreSQL: set DATABASE_URL. The embedded database allows only one process.',
    );
  }
  if (config.cityBaseUrl !== undefined) requireBaseUrl(config.cityBaseUrl);
  requireProxies(config.trustedProxies);
  config.corsOrigins.forEach(requireOrigin);
  config.modelsCatalogKeys.forEach(requirePublicKey);
  telemetrySettings(config);
  s3Settings('', config);
  return config;
}

/**
 * JOURNAL_PATH, or its default: in the folder of the embedded database, or with PostgreSQL in the working
 * directory.
 */
export function journalFolder({ journalPath, databaseUrl, databasePath }: GatewayConfig): string {
  return journalPath ?? (databaseUrl === undefined ? join(databasePath, 'journal') : './data/journal');
}

/** MODELS_CATALOG_FILE, or its default in the folder of the embedded database; with PostgreSQL undefined. */
export function catalogFile({
  modelsCatalogFile,
  databaseUrl,
  databasePath,
}: Pick<GatewayConfig, 'modelsCatalogFile' | 'databaseUrl' | 'databasePath'>): string | undefined {
  return (
    modelsCatalogFile ?? (databaseUrl === undefined ? join(databasePath, 'models-catalog.json') : undefined)
  );
}

/**
 * Checks before the start that the folders and the bucket can be used. Creates nothing. Throws a SettingError
 * for an unusable setting, and a plain Error when the bucket cannot be reached, which may be temporary.
 */
export async function requireStorage(config: GatewayConfig, clock: Clock): Promise<void> {
  const { databaseUrl, databasePath, journalPath, storagePath } = config;
  const bucket = s3Settings('', config);
  if (databaseUrl === undefined) await requireFolder('DATABASE_PATH', databasePath);
  if (journalPath !== undefined) await requireFolder('JOURNAL_PATH', journalPath);
  if (bucket !== undefined) await requireBucket('', { ...bucket, clock });
  else if (storagePath !== undefined) await requireFolder('STORAGE_PATH', storagePath);
}

// Check them even if an administrator exists already: otherwise an invalid value would be refused only by a
// later start, on a new database.
function requireCredentials(adminId: string, password: string): void {
  const idError = adminIdError(adminId);
  if (idError !== null) throw new SettingError(`ADMIN_ID: ${idError}`);
  const passwordProblem = passwordError(password, [adminId]);
  if (passwordProblem !== null) throw new SettingError(`ADMIN_PASSWORD: ${passwordProblem}`);
}

// Browsers send origins in lower case and without a path, so any other string would never match. The URL
// class reports no origin for other schemes, such as those of browser extensions, so a pattern checks these.
function requireOrigin(origin: string): void {
  const isWeb = URL.canParse(origin) && /^https?:$/.test(new URL(origin).protocol);
  const isUsable = isWeb
    ? new URL(origin).origin === origin
    : /^(?!https?:)[a-z][a-z0-9+.-]*:\/\/[^/?#\s]+$/.test(origin);
  if (!isUsable)
    throw new SettingError(
      `CORS_ORIGINS takes origins such as https://shop.example, without a path, not "${origin}".`,
    );
}

function requirePublicKey(text: string): void {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== 32 || bytes.toString('base64') !== text)
    throw new SettingError(
      `MODELS_CATALOG_KEYS takes public keys of 32 bytes in base64, as "townhall models keygen" prints them, not "${text}".`,
    );
}

function requireProxies(proxies: readonly string[]): void {
  try {
    trustProxies(proxies);
  } catch (error) {
    throw new SettingError(`TRUSTED_PROXIES: ${errorText(error)}`);
  }
}

function requireBaseUrl(text: string): void {
  const message = explainUnusableBaseUrl(text);
  if (message !== null) throw new SettingError(`TOWNHALL_CITY_BASE_URL ${message}.`);
}

/** Does not repeat the text, which may contain a password. */
function explainUnusableBaseUrl(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && (url.username !== '' || url.password !== ''))
    return 'must not contain credentials, since every caller can read this address';
  // Paths are appended to the address. An empty query or fragment has no part in the parsed URL.
  if (url === undefined || !/^https?:$/.test(url.protocol) || /[?#]/.test(text))
    return 'must be an http or https address without a query or fragment';
  return null;
}
