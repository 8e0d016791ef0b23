// The Bureaus: who the tenants are and whether they may be served. Other slices ask here before they act
// for a Bureau, and let its state into their own queries without naming its table.
import type { Bureau as WireBureau, BureauSummary } from '../../contract/gateway/types.gen.ts';
import type { Sql, Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { decodeCursor, isTimeAndId, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, type Identity, type Origin } from '../identity.ts';
import type { Service } from '../service.ts';
import { changesState, refuseArchived, refuseUnlessActive, type BureauState } from './lifecycle.ts';
import { hostOf, requireOrigins, requireServerUrl } from './server-url.ts';
import type { Bureau, BureausStore, BureauSettings, SqlFragment } from './store.ts';

/** Whose a user token is. */
export interface TokenOwner {
  userId: string;
  bureauId: string;
  tokenId: string;
  expiresAt: Date;
}

interface BureausOptions {
  store: BureausStore;
  log: Log;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  /** Null when the token is nobody's; throws 403 when its Bureau serves nobody. */
  findTokenOwner(token: string): Promise<TokenOwner | null>;
}

export interface Bureaus extends Service<'bureaus'> {
  /**
   * Makes the Bureau `local` of the local edition unless it exists; what became of it since is left as it
   * is. Throws a Problem when `serverUrl` is not fit to be an entrypoint.
   */
  ensureLocal(serverUrl: string): Promise<void>;
  find(bureauId: string): Promise<Bureau | null>;
  /** SQL for the state of the Bureau that a column names, for a query of another slice; null when there is none. */
  stateOf(sql: Sql, column: string): SqlFragment;
  /** Likewise the only models that the Bureau's users may call; null for all. */
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
  /** Throws 403 `bureau_paused` or `bureau_archived` unless the state is active. */
  refuseUnlessActive(state: BureauState): void;
  /** A Bureau's own limit for each of its users, as known since the last `refresh`. */
  requestsPerMinute(bureauId: string): number | undefined;
  /** Whether pages of the origin may call the login operations, as known since the last `refresh`. */
  hasLoginOrigin(origin: string): boolean;
  /** Reads the limits and origins again; called after each change. */
  refresh(): Promise<void>;
}

type SettingsBody = {
  name?: string;
  redirect_origins?: string[];
  models?: string[] | null;
  limits?: { requests_per_minute?: number } | null;
  starting_credits?: number | null;
  metadata?: Record<string, unknown>;
};

export function bureaus({ store, log, audit, changes, findTokenOwner }: BureausOptions): Bureaus {
  let limits: ReadonlyMap<string, number> = new Map();
  let loginOrigins: ReadonlySet<string> = new Set();

  /** One change of one Bureau with its entry in the audit log; null leaves it as it is. */
  async function change(
    bureauId: string,
    done: { origin: Origin; action: string },
    work: (tx: Tx, before: Bureau) => Promise<{ after: Bureau; diff: Record<string, unknown> } | null>,
  ): Promise<Bureau> {
    return store.tx(async (tx) => {
      const before = await store.lock(tx, bureauId);
      if (!before) throw unknown();
      const changed = await work(tx, before);
      if (changed === null) return before;
      await audit.record(tx, {
        ...done.origin,
        action: done.action,
        target: { kind: 'bureau', id: bureauId },
        outcome: 'ok',
        diff: changed.diff,
      });
      await changes.bump(tx);
      return changed.after;
    });
  }

  function move(to: BureauState) {
    return async (call: {
      operationId: string;
      body: { bureau_id: string };
      identity: Identity;
      remoteAddress: string;
      requestId: string;
    }) => {
      const bureau = await change(
        call.body.bureau_id,
        { origin: originOf(call), action: call.operationId },
        async (tx, before) => {
          if (!changesState(before.state, to)) return null;
          const after = await store.setState(tx, before.bureauId, to);
          return { after, diff: { state: { from: before.state, to } } };
        },
      );
      return { status: 200 as const, body: wireBureau(bureau) };
    };
  }

  async function replaceSettings(tx: Tx, before: Bureau, given: Partial<BureauSettings>) {
    refuseArchived(before.state);
    return {
      after: await store.update(tx, before.bureauId, { ...before, ...given }),
      diff: differences(before, given),
    };
  }

  return {
    name: 'bureaus',
    title: 'Bureaus',
    env: [],
    handlers: {
      'bureaus.listBureaus': async (call) => {
        const after = call.query.cursor === undefined ? null : decodeCursor(call.query.cursor, isTimeAndId);
        const limit = pageLimit(call.query);
        const { items, next_cursor } = pageOf(await store.list(after, limit + 1), limit, (row) => [
          row.createdAtText,
          row.bureauId,
        ]);
        return { status: 200, body: { items: items.map(wireBureau), next_cursor } };
      },
      'bureaus.createBureau': async (call) => {
        const serverUrl = requireServerUrl(call.body.server_url);
        const bureauId = call.body.bureau_id ?? id('bur');
        const settings: BureauSettings = {
          name: hostOf(serverUrl),
          serverUrl,
          redirectOrigins: [],
          models: null,
          limits: null,
          startingCredits: null,
          metadata: {},
          ...settingsOf(call.body),
        };
        return store.tx(async (tx) => {
          const made = await store.insert(tx, bureauId, settings);
          if (!made)
            throw new Problem('conflict', 'conflict', 'There is a Bureau with this id already.', {
              param: 'bureau_id',
            });
          const reply = { status: 201 as const, body: wireBureau(made) };
          const target = { kind: 'bureau', id: bureauId };
          await audit.record(tx, {
            ...originOf(call),
            action: call.operationId,
            target,
            outcome: 'ok',
            diff: { name: made.name, server_url: serverUrl },
          });
          await call.remember(tx, reply);
          await changes.bump(tx);
          return reply;
        });
      },
      'bureaus.updateBureau': async (call) => {
        const given = settingsOf(call.body);
        const done = { origin: originOf(call), action: call.operationId };
        const bureau = await change(call.body.bureau_id, done, (tx, before) =>
          replaceSettings(tx, before, given),
        );
        return { status: 200, body: wireBureau(bureau) };
      },
      'bureaus.updateServer': async (call) => {
        const serverUrl = requireServerUrl(call.body.server_url);
        const done = { origin: originOf(call), action: call.operationId };
        const bureau = await change(call.body.bureau_id, done, (tx, before) =>
          replaceSettings(tx, before, { serverUrl }),
        );
        return { status: 200, body: wireBureau(bureau) };
      },
      'bureaus.pauseBureau': move('paused'),
      'bureaus.activateBureau': move('active'),
      'bureaus.archiveBureau': move('archived'),
      'bureaus.getCurrentBureau': async (call) => {
        const { identity } = call;
        if (identity.kind === 'user')
          return { status: 200, body: { bureau: summary(await known(identity.bureauId)) } };
        const token = call.headers['x-user-token'];
        if (token === undefined) {
          const message = 'is required of an administrator';
          throw new Problem('bad_request', 'invalid_request', `The header \`X-User-Token\` ${message}.`, {
            param: 'X-User-Token',
            details: [{ path: 'X-User-Token', message }],
          });
        }
        // A machine credential of a Bureau that is not active learns that, whatever token it asks about.
        if (identity.bureauId !== undefined) refuseUnlessActive((await known(identity.bureauId)).state);
        const examined = await findTokenOwner(token).catch((error: unknown) =>
          hiddenOutside(identity.bureauId, error),
        );
        // A machine credential may not know more of another Bureau's token than of none.
        if (!examined || (identity.bureauId !== undefined && identity.bureauId !== examined.bureauId)) {
          throw new Problem('not_found', 'token_not_found', 'There is no such user token.', {
            param: 'X-User-Token',
          });
        }
        const { bureauId, userId, tokenId, expiresAt } = examined;
        const bureau = wireBureau(await known(bureauId));
        return {
          status: 200,
          body: { bureau, user_id: userId, token_id: tokenId, expires_at: expiresAt.toISOString() },
        };
      },
    },
    async ensureLocal(serverUrl) {
      const isNew = await store.insertIfAbsent({
        bureauId: 'local',
        name: 'Local',
        serverUrl: requireServerUrl(serverUrl),
      });
      if (isNew) log.info({ bureauId: 'local' }, 'made the Bureau of the local edition');
    },
    find: (bureauId) => store.find(bureauId),
    stateOf: (sql, column) => store.stateOf(sql, column),
    modelsOf: (sql, column) => store.modelsOf(sql, column),
    startingCreditsOf: (sql, column) => store.startingCreditsOf(sql, column),
    refuseUnlessActive,
    requestsPerMinute: (bureauId) => limits.get(bureauId),
    hasLoginOrigin: (origin) => loginOrigins.has(origin),
    async refresh() {
      const rows = await store.listServed();
      loginOrigins = new Set(
        rows.flatMap(({ redirectOrigins, serverUrl }) => [
          ...redirectOrigins,
          ...(URL.canParse(serverUrl) ? [new URL(serverUrl).origin] : []),
        ]),
      );
      limits = new Map(
        rows.flatMap(({ bureauId, limits: own }) =>
          own?.requests_per_minute === undefined ? [] : [[bureauId, own.requests_per_minute]],
        ),
      );
    },
  };

  // That a Bureau is paused is said of its tokens alone, and so never of a token that is another's than the machine's.
  function hiddenOutside(ownBureauId: string | undefined, error: unknown): null {
    if (error instanceof Problem && error.kind === 'forbidden' && ownBureauId !== undefined) return null;
    throw error;
  }

  async function known(bureauId: string): Promise<Bureau> {
    const bureau = await store.find(bureauId);
    if (!bureau) throw unknown();
    return bureau;
  }
}

function unknown(): Problem {
  return new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau_id' });
}

/** The settings among the members of a body; those that were not given are absent. */
function settingsOf(body: SettingsBody): Partial<BureauSettings> {
  if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
  for (const [index, model] of (body.models ?? []).entries()) requireStorable(model, `models[${index}]`);
  return {
    ...(body.name === undefined ? {} : { name: body.name }),
    ...(body.redirect_origins === undefined
      ? {}
      : { redirectOrigins: requireOrigins(body.redirect_origins) }),
    ...(body.models === undefined ? {} : { models: body.models }),
    ...(body.limits === undefined ? {} : { limits: body.limits }),
    ...(body.starting_credits === undefined
      ? {}
      : { startingCredits: body.starting_credits === null ? null : BigInt(body.starting_credits) }),
    ...(body.metadata === undefined ? {} : { metadata: body.metadata }),
  };
}

const wireNames: Record<keyof BureauSettings, string> = {
  name: 'name',
  serverUrl: 'server_url',
  redirectOrigins: 'redirect_origins',
  models: 'models',
  limits: 'limits',
  startingCredits: 'starting_credits',
  metadata: 'metadata',
};

function differences(before: Bureau, given: Partial<BureauSettings>): Record<string, unknown> {
  const shown = (value: unknown) => (typeof value === 'bigint' ? Number(value) : value);
  return Object.fromEntries(
    (Object.keys(given) as (keyof BureauSettings)[]).map((name) => [
      wireNames[name],
      { from: shown(before[name]), to: shown(given[name]) },
    ]),
  );
}

function summary({ bureauId, name, state, serverUrl }: Bureau): BureauSummary {
  return { bureau_id: bureauId, name, state, server_url: serverUrl };
}

function wireBureau(bureau: Bureau): WireBureau {
  return {
    ...summary(bureau),
    redirect_origins: bureau.redirectOrigins,
    models: bureau.models,
    limits: bureau.limits,
    starting_credits: bureau.startingCredits === null ? null : Number(bureau.startingCredits),
    metadata: bureau.metadata,
    created_at: bureau.createdAt.toISOString(),
    updated_at: bureau.updatedAt.toISOString(),
    archived_at: bureau.archivedAt?.toISOString() ?? null,
  };
}
