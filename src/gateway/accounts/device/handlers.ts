// The handlers of device logins (RFC 8628): a program starts a login and polls it, a person looks it up by
// its user code and confirms or denies it.
import { createHash } from 'node:crypto';
import type { DeviceKey } from '../../../contract/gateway/types.gen.ts';
import type { Background } from '../../../kernel/background.ts';
import { networkOf } from '../../../kernel/http/address.ts';
import { Problem, tooManyAttempts } from '../../../kernel/problem.ts';
import { tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { BureauState } from '../../bureaus/index.ts';
import { originOf } from '../../identity.ts';
import { defaultKeySeconds } from '../core/api-key.ts';
import type { AttemptLimitsStore, WindowLimit } from '../core/attempt-limits-store.ts';
import type { AccountsHandlers, AuditPort, CreditsPort, RequireActiveBureau } from '../core/ports.ts';
import type { AccountsStore } from '../core/store.ts';
import { newSecret, newUserCode } from '../login/sealed-secrets.ts';
import { pollDeviceLogin, type DeviceCredential } from './result.ts';
import type { DeviceLoginStore, KeyLimits } from './store.ts';

interface DeviceLoginOptions {
  store: AccountsStore;
  deviceLogins: DeviceLoginStore;
  attemptLimits: AttemptLimitsStore;
  audit: AuditPort;
  credits: Pick<CreditsPort, 'openKey'>;
  background: Background;
  /** The address under which browsers reach this server; null while it is not known. */
  baseUrl: () => string | null;
  times: { attemptSeconds: number; tokenSeconds: number };
  requireActiveBureau: RequireActiveBureau;
  /** Throws 403 for a Bureau that is paused or archived. */
  refuseUnlessActive: (state: BureauState) => void;
}

type DeviceHandlers = Pick<
  AccountsHandlers,
  | 'accounts.startDeviceLogin'
  | 'accounts.getDeviceLoginResult'
  | 'accounts.getDeviceLogin'
  | 'accounts.decideDeviceLogin'
>;
type StartCall = Parameters<DeviceHandlers['accounts.startDeviceLogin']>[0];
type ResultCall = Parameters<DeviceHandlers['accounts.getDeviceLoginResult']>[0];
type ShowCall = Parameters<DeviceHandlers['accounts.getDeviceLogin']>[0];
type DecideCall = Parameters<DeviceHandlers['accounts.decideDeviceLogin']>[0];

const noStore = { 'cache-control': 'no-store' };
const intervalSeconds = 5;
const maxPendingPerNetwork = 20;
// Ten wrong guesses an hour are too few to hit one of the few pending user codes among 20^8.
const wrongCodes: WindowLimit = { limit: 10, windowSeconds: 3600 };

export function deviceLoginHandlers(options: DeviceLoginOptions): DeviceHandlers {
  return {
    'accounts.startDeviceLogin': (call) => startLogin(options, call),
    'accounts.getDeviceLoginResult': (call) => readResult(options, call),
    'accounts.getDeviceLogin': (call) => showLogin(options, call),
    'accounts.decideDeviceLogin': (call) => decideLogin(options, call),
  };
}

async function startLogin(options: DeviceLoginOptions, call: StartCall) {
  await options.requireActiveBureau(call.body.bureau_id);
  const pageUrl = devicePageUrl(options, call.body.bureau_id);
  const { deviceCode, userCode } = await insertLogin(options, call);
  options.background.run('delete expired device logins', () => options.deviceLogins.deleteExpired());
  return {
    status: 200 as const,
    headers: noStore,
    body: {
      device_code: deviceCode,
      user_code: userCode,
      verification_uri: pageUrl,
      verification_uri_complete: `${pageUrl}#${userCode}`,
      expires_in: options.times.attemptSeconds,
      interval: intervalSeconds,
    },
  };
}

async function readResult(options: DeviceLoginOptions, call: ResultCall) {
  const credential = await pollDeviceLogin(
    {
      ...options,
      tokenSeconds: options.times.tokenSeconds,
      recordIssue: (tx, issuedCredential) =>
        options.audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'token', id: issuedCredential.tokenId },
          outcome: 'ok',
          diff: issueDiff(issuedCredential),
        }),
    },
    call.body.device_code,
  );
  return { status: 200 as const, headers: noStore, body: serializeCredential(credential) };
}

async function showLogin(options: DeviceLoginOptions, call: ShowCall) {
  const { userCode, digest } = readUserCode(call.body.user_code);
  const login = await findWithGuessLimit(options, call, () =>
    options.deviceLogins.findPending(digest, call.identity.bureauId),
  );
  const { name, address, createdAt, expiresAt, keyLimits } = login;
  return {
    status: 200 as const,
    headers: noStore,
    body: {
      user_code: userCode,
      name,
      address,
      created_at: createdAt.toISOString(),
      expires_at: expiresAt.toISOString(),
      ...(keyLimits === null ? {} : { key: serializeLimits(keyLimits) }),
    },
  };
}

async function decideLogin(options: DeviceLoginOptions, call: DecideCall) {
  const { store, deviceLogins, audit } = options;
  const { decision } = call.body;
  const { digest } = readUserCode(call.body.user_code);
  const { userId, bureauId, tokenId } = call.identity;
  const state = decision === 'confirm' ? 'confirmed' : 'denied';
  await findWithGuessLimit(options, call, () =>
    store.tx(async (_queries, tx) => {
      const login = await deviceLogins.withSql(tx).decide(digest, bureauId, { state, decidedBy: tokenId });
      if (login === null) return null;
      await audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'user', id: userId },
        outcome: 'ok',
        diff: { decision, name: login.name, address: login.address },
      });
      return login;
    }),
  );
  return { status: 200 as const, body: { decision } };
}

/** The page on which a person confirms a login. Without the query `bureau` it serves the Bureau `local`. */
function devicePageUrl({ baseUrl }: DeviceLoginOptions, bureauId: string): string {
  const base = baseUrl();
  const query = bureauId === 'local' ? '' : `?bureau=${bureauId}`;
  if (base !== null) return `${base.replace(/\/+$/, '')}/device${query}`;
  const message =
    'Device logins need TOWNHALL_CITY_BASE_URL, the address under which browsers reach this server.';
  throw new Problem('unavailable', 'service_not_configured', message, { headers: { 'retry-after': '60' } });
}

async function insertLogin(
  { deviceLogins, times }: DeviceLoginOptions,
  { body, remoteAddress }: StartCall,
): Promise<{ deviceCode: string; userCode: string }> {
  const deviceCode = newSecret('device');
  for (;;) {
    const userCode = newUserCode();
    const result = await deviceLogins.insert(
      {
        digest: tokenDigest(deviceCode),
        userCodeDigest: readUserCode(userCode).digest,
        bureauId: body.bureau_id,
        name: body.name,
        address: remoteAddress,
        network: networkOf(remoteAddress),
        keyLimits: body.key === undefined ? null : readLimits(body.key),
        ttlSeconds: times.attemptSeconds,
        intervalSeconds,
      },
      maxPendingPerNetwork,
    );
    if (result === 'busy') throw tooManyAttempts(times.attemptSeconds);
    if (result === 'stored') return { deviceCode, userCode };
  }
}

/** The code as it is shown, and its digest. A lookup by digest takes the same time for every wrong code. */
function readUserCode(text: string): { userCode: string; digest: Buffer } {
  const letters = text.replace('-', '').toUpperCase();
  const userCode = `${letters.slice(0, 4)}-${letters.slice(4)}`;
  return { userCode, digest: tokenDigest(`device user code ${userCode}`) };
}

/**
 * Counts a guess for the user and for the network before the lookup, and takes it back when the code was
 * right. Throws 403 for an API key, 429 after too many wrong codes, and 404 for a wrong code.
 */
async function findWithGuessLimit<Login>(
  { store, attemptLimits }: DeviceLoginOptions,
  { identity: { userId, tokenId }, remoteAddress }: ShowCall | DecideCall,
  find: () => Promise<Login | null>,
): Promise<Login> {
  if ((await store.findToken(tokenId))?.kind === 'key')
    throw new Problem('forbidden', 'forbidden_for_identity', 'An API key cannot decide device logins.');
  const keys = [guessKey('user', userId), guessKey('network', networkOf(remoteAddress))];
  for (const [index, key] of keys.entries()) {
    const count = await attemptLimits.count(key, wrongCodes);
    if (count === 'counted') continue;
    // A guess that one limit refuses must not use up the other limit.
    for (const earlierKey of keys.slice(0, index)) await attemptLimits.uncount(earlierKey);
    throw tooManyAttempts(count.retryAfterSeconds);
  }
  const login = await find();
  if (login === null)
    throw new Problem('not_found', 'login_not_found', 'There is no device login with this code.', {
      param: 'user_code',
    });
  for (const key of keys) await attemptLimits.uncount(key);
  return login;
}

function guessKey(kind: 'user' | 'network', value: string): Buffer {
  return createHash('sha256')
    .update(JSON.stringify(['device codes', kind, value]))
    .digest();
}

function readLimits({ models, credit_cap: creditCap, ttl }: DeviceKey): KeyLimits {
  return {
    models: models === undefined ? null : [...models],
    creditCap: creditCap ?? null,
    ttlSeconds: ttl ?? defaultKeySeconds,
  };
}

function serializeLimits({ models, creditCap, ttlSeconds }: KeyLimits): DeviceKey {
  return {
    ...(models === null ? {} : { models }),
    ...(creditCap === null ? {} : { credit_cap: creditCap }),
    ttl: ttlSeconds,
  };
}

function serializeCredential(credential: DeviceCredential) {
  return {
    user_token: credential.userToken,
    token_id: credential.tokenId,
    kind: credential.kind,
    name: credential.name,
    models: credential.models === null ? null : [...credential.models],
    credit_cap: credential.creditCap,
    expires_at: credential.expiresAt.toISOString(),
  };
}

function issueDiff({ userId, createdBy, kind, name, creditCap, models, expiresAt }: DeviceCredential) {
  return {
    user_id: userId,
    created_by: createdBy,
    kind,
    name,
    models,
    credit_cap: creditCap,
    expires_at: expiresAt.toISOString(),
  };
}
