// Authentication by agent token. Opening creates the first token, so every agent has one.
import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { errorCode } from '../../kernel/file-errors.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { parseToken, createToken, tokenDigest, type Redactor } from '../../kernel/secrets/secret.ts';
import type { Identity } from '../identity.ts';
import { tokenAdmin, type TokenAdmin } from './admin.ts';
import type { LiveToken, StoredToken, TokenStore } from './store.ts';
import { readTokenFile, writeTokenFile } from './token-file.ts';

export interface TokensOptions {
  store: TokenStore;
  /** The agent's name; processes with the same name on one database are replicas of one agent. */
  name: string;
  tokenFile: string;
  redactor: Redactor;
  clock: Clock;
  log: Log;
}

export interface Tokens {
  agentId: string;
  /**
   * The identity of a bearer token, or null. A revocation by another replica takes effect within a second.
   */
  identify(bearer: string): Promise<Identity | null>;
  /** Its changes take effect in this process at once. */
  admin: TokenAdmin;
}

// How long the list of live tokens is cached. A revocation has to take effect within
// a second on every replica.
const cacheTtlMs = 500;

/** Creates the agent's row and first token unless they exist. Throws when the token file is unusable. */
export async function openTokens(options: TokensOptions): Promise<Tokens> {
  const { store, name, redactor, clock } = options;
  const agentId = await store.ensureAgent(name, id('agt'));
  redactor.hold(await ensureFirstToken(agentId, options));
  const liveTokens = cacheLiveTokens(() => store.listLive(agentId), clock);
  return {
    agentId,
    admin: tokenAdmin({ store, agentId, redactor, onChange: liveTokens.clear }),
    async identify(bearer) {
      if (parseToken(bearer) !== 'agt') return null;
      const digest = tokenDigest(bearer);
      // Every token is compared, in constant time each, so that the duration does
      // not depend on which one matches.
      let tokenId: string | null = null;
      for (const liveToken of await liveTokens.read()) {
        if (timingSafeEqual(liveToken.digest, digest)) tokenId = liveToken.tokenId;
      }
      return tokenId === null ? null : { kind: 'agent', agentId, tokenId };
    },
  };
}

function cacheLiveTokens(
  list: () => Promise<LiveToken[]>,
  clock: Clock,
): { read(): Promise<LiveToken[]>; clear(): void } {
  let cachedTokens: Promise<LiveToken[]> | undefined;
  let readAtMs = Number.NEGATIVE_INFINITY;
  return {
    read() {
      if (cachedTokens && clock.monotonicMs() - readAtMs < cacheTtlMs) return cachedTokens;
      readAtMs = clock.monotonicMs();
      const tokenList = list();
      cachedTokens = tokenList;
      // Callers that share a failed read all fail; the next one reads again.
      tokenList.catch(() => {
        if (cachedTokens === tokenList) cachedTokens = undefined;
      });
      return tokenList;
    },
    clear: () => void (cachedTokens = undefined),
  };
}

// Write the file before the row: after a crash in between, the next start adds the row for the token in the
// file.
async function ensureFirstToken(agentId: string, { store, tokenFile, log }: TokensOptions): Promise<string> {
  const fileToken = await readTokenFile(tokenFile, log);
  const storedToken = fileToken === null ? undefined : await store.find(tokenDigest(fileToken));
  requireOwnToken(storedToken, agentId, tokenFile);
  if (fileToken !== null && storedToken?.isLive) return fileToken;
  // A revoked or expired token must not become valid again because the file still holds it.
  const isUsable = fileToken !== null && storedToken === undefined;
  const token = isUsable
    ? fileToken
    : await createTokenFile(tokenFile, { replace: storedToken !== undefined, log });
  const digest = tokenDigest(token);
  await store.add({ tokenId: id('tok'), agentId, name: 'first', digest, last4: token.slice(-4) });
  requireOwnToken(await store.find(digest), agentId, tokenFile);
  return token;
}

function requireOwnToken(storedToken: StoredToken | undefined, agentId: string, tokenFile: string): void {
  if (storedToken === undefined || storedToken.agentId === agentId) return;
  throw new Error(
    `The token in ${tokenFile} belongs to another agent of this database. Give this agent its own --token-file.`,
  );
}

async function createTokenFile(
  path: string,
  { replace, log }: { replace: boolean; log: Log },
): Promise<string> {
  const token = createToken('agt');
  try {
    await writeTokenFile(path, token, { replace });
    log.info(
      { path },
      replace ? 'replaced the token in the token file, which was no longer valid' : 'created the first token',
    );
    return token;
  } catch (cause) {
    // EEXIST: another replica created the file first, and its token belongs to the same agent.
    const existingToken = errorCode(cause) === 'EEXIST' ? await readTokenFile(path, log) : null;
    if (existingToken === null) throw new Error(`The token file ${path} cannot be written.`, { cause });
    return existingToken;
  }
}
