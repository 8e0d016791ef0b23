// bureaus.getCurrentBureau: the Bureau of the calling user, or of a user token that an administrator sends.
import type { Bureau as BureauBody, BureauSummary } from '../../contract/gateway/types.gen.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import { bureauNotFound, refuseUnlessActive } from './lifecycle.ts';
import { serializeBureau, summarizeBureau } from './serialize.ts';
import type { Bureau, BureausStore } from './store.ts';

/** The user, Bureau and expiry of a user token. */
export interface TokenOwner {
  userId: string;
  bureauId: string;
  tokenId: string;
  expiresAt: Date;
}

/** Null for an unknown token; throws 403 while the token's Bureau is not active. */
export type FindTokenOwner = (token: string) => Promise<TokenOwner | null>;

type CurrentBureau =
  | { bureau: BureauSummary }
  | { bureau: BureauBody; user_id: string; token_id: string; expires_at: string };

export function createGetCurrentBureau({
  store,
  findTokenOwner,
}: {
  store: Pick<BureausStore, 'find'>;
  findTokenOwner: FindTokenOwner;
}) {
  async function requireBureau(bureauId: string): Promise<Bureau> {
    const bureau = await store.find(bureauId);
    if (!bureau) throw bureauNotFound();
    return bureau;
  }

  /** A machine credential gets 404 for tokens of all other Bureaus, even if they are paused or archived. */
  async function findVisibleOwner(token: string, machineBureauId: string | undefined): Promise<TokenOwner> {
    // Check the machine's own Bureau first: while it is not active, the answer is 403 for every token.
    if (machineBureauId !== undefined) refuseUnlessActive((await requireBureau(machineBureauId)).state);
    const owner = await findTokenOwner(token).catch((error: unknown) => {
      if (error instanceof Problem && error.kind === 'forbidden' && machineBureauId !== undefined)
        return null;
      throw error;
    });
    if (!owner || (machineBureauId !== undefined && machineBureauId !== owner.bureauId)) {
      throw new Problem('not_found', 'token_not_found', 'There is no such user token.', {
        param: 'X-User-Token',
      });
    }
    return owner;
  }

  return async ({
    identity,
    headers,
  }: {
    identity: Extract<Identity, { kind: 'user' | 'admin' }>;
    headers: { 'x-user-token'?: string };
  }): Promise<{ status: 200; body: CurrentBureau }> => {
    if (identity.kind === 'user')
      return { status: 200, body: { bureau: summarizeBureau(await requireBureau(identity.bureauId)) } };
    const token = headers['x-user-token'];
    if (token === undefined) {
      const message = 'is required of an administrator';
      throw new Problem('bad_request', 'invalid_request', `The header \`X-User-Token\` ${message}.`, {
        param: 'X-User-Token',
        details: [{ path: 'X-User-Token', message }],
      });
    }
    const { bureauId, userId, tokenId, expiresAt } = await findVisibleOwner(token, identity.bureauId);
    const bureau = serializeBureau(await requireBureau(bureauId));
    return {
      status: 200,
      body: { bureau, user_id: userId, token_id: tokenId, expires_at: expiresAt.toISOString() },
    };
  };
}
