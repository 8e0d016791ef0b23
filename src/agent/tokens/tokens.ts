// Whose token a bearer is. There is no agent without a token: opening this room makes one when there is none, and
// from then on a credential is this agent's or nobody's.
import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { id } from '../../kernel/ids.ts';
import { parseToken, token as mintToken, tokenDigest, type Redactor } from '../../kernel/secrets/secret.ts';
import type { Identity } from '../identity.ts';
import { tokenDesk, type TokenDesk } from './admin.ts';
import type { KnownToken, LiveToken, TokenStore } from './store.ts';
import { readTokenFile, writeTokenFile } from './token-file.ts';

export interface TokensNeeds {
  store: TokenStore;
  /** The agent's name; the same name on one database is a replica of the same agent. */
  name: string;
  tokenFile: string;
  redactor: Redactor;
  clock: Clock;
  log: Log;
}

export interface Tokens {
  agentId: string;
  /** The identity behind a bearer, or null. Holds a revocation within a second. */
  identify(bearer: string): Promise<Identity | null>;
  /** What its owner does with them; in this process a change holds at once. */
  desk: TokenDesk;
}

// How old the list of live tokens may be. A revocation has to hold within a second on every replica.
const freshMs = 500;

/** Finds or makes the agent and its token. Throws, and so stops the start, when the token file cannot be used. */
export async function openTokens({
  store,
  name,
  tokenFile,
  redactor,
  clock,
  log,
}: TokensNeeds): Promise<Tokens> {
  const agentId = await store.agent(name, id('agt'));
  redactor.hold(await settleTokenFile());

  let list: Promise<LiveToken[]> | undefined;
  let readAt = Number.NEGATIVE_INFINITY;
  function liveTokens(): Promise<LiveToken[]> {
    if (list && clock.monotonicMs() - readAt < freshMs) return list;
    readAt = clock.monotonicMs();
    const reading = store.live(agentId);
    list = reading;
    // A failed reading is everybody's answer this once and is not kept.
    reading.catch(() => {
      if (list === reading) list = undefined;
    });
    return reading;
  }

  return {
    agentId,
    desk: tokenDesk({ store, agentId, redactor, onChange: () => void (list = undefined) }),
    async identify(bearer) {
      if (parseToken(bearer) !== 'agt') return null;
      const digest = tokenDigest(bearer);
      // All of them are compared, each in constant time: neither which one fits nor how far it fits shows.
      let found: string | null = null;
      for (const live of await liveTokens()) {
        if (timingSafeEqual(live.digest, digest)) found = live.tokenId;
      }
      return found === null ? null : { kind: 'agent', agentId, tokenId: found };
    },
  };

  // The file comes before the row: what a crash leaves between the two is adopted by the next start.
  async function settleTokenFile(): Promise<string> {
    let token = await readTokenFile(tokenFile, log);
    const known = token === null ? undefined : await store.find(tokenDigest(token));
    requireOwn(known);
    if (token !== null && known?.isLive) return token;
    // One that was revoked or has expired must not come back to life by lying in the file.
    if (token === null || known) token = await makeToken({ replace: known !== undefined });
    const digest = tokenDigest(token);
    await store.add({ tokenId: id('tok'), agentId, name: 'first', digest, last4: token.slice(-4) });
    requireOwn(await store.find(digest));
    return token;
  }

  function requireOwn(known: KnownToken | undefined): void {
    if (known === undefined || known.agentId === agentId) return;
    throw new Error(
      `The token in ${tokenFile} belongs to another agent of this database. Give this one its own --token-file.`,
    );
  }

  async function makeToken({ replace }: { replace: boolean }): Promise<string> {
    const minted = mintToken('agt');
    try {
      await writeTokenFile(tokenFile, minted, { replace });
      log.info(
        { path: tokenFile },
        replace
          ? 'replaced the token in the token file, which was not valid any more'
          : 'made the first token',
      );
      return minted;
    } catch (cause) {
      // Another replica was faster; its token is as good.
      const theirs =
        (cause as NodeJS.ErrnoException).code === 'EEXIST' ? await readTokenFile(tokenFile, log) : null;
      if (theirs === null) throw new Error(`The token file ${tokenFile} cannot be written.`, { cause });
      return theirs;
    }
  }
}
