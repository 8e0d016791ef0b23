// A server with the identity services (Bureaus, accounts, administrators, directory) on its own
// database. The contract is reduced to their operations; everything else is real.
import { readFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import {
  accounts,
  accountsStores,
  type Accounts,
  type AccountsOptions,
} from '../../../src/gateway/accounts/index.ts';
import { admin, adminStore, type Admin, type AdminOptions } from '../../../src/gateway/admin/index.ts';
import type { AuditEntry } from '../../../src/gateway/audit/index.ts';
import { bureaus, bureausStore, type Bureaus } from '../../../src/gateway/bureaus/index.ts';
import { creditsStore } from '../../../src/gateway/credits/index.ts';
import { directory } from '../../../src/gateway/directory.ts';
import { scopeOperations } from '../../../src/contract/gateway/operations.gen.ts';
import { identityOfScheme, type Identity } from '../../../src/gateway/identity.ts';
import { mail } from '../../../src/gateway/mail.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createContract } from '../../../src/kernel/contract/contract.ts';
import type { Database } from '../../../src/kernel/data/database.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor, parseToken } from '../../../src/kernel/secrets/secret.ts';
import { createServer } from '../../../src/kernel/http/server.ts';
import { testDatabase } from '../../support/databases.ts';

/**
 * A member of an answer, readable as text and as object; a test that expects the wrong type fails.
 */
export type Json = string & { readonly [name in Member]: Json };
type Member =
  | 'error'
  | 'code'
  | 'param'
  | 'message'
  | 'items'
  | 'login_id'
  | 'user'
  | 'user_id'
  | 'user_token'
  | 'expires_at'
  | 'bureau'
  | 'bureau_id'
  | 'session_token'
  | 'outcome'
  | 'inputs'
  | 'status'
  | 'url'
  | 'user_code'
  | 'token_id'
  | 'next_cursor'
  | 'verification_id'
  | 'token'
  | 'models'
  | 'name'
  | 'email'
  | 'revoked'
  | 'state'
  | 'kind'
  | 'external_id'
  | 'display_name'
  | 'avatar_url'
  | 'id';

export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: Json;
  /** The raw body, for pages. */
  text: string;
}

export interface World {
  url: string;
  database: Database;
  bureaus: Bureaus;
  accounts: Accounts;
  admin: Admin;
  /** Every line of the log so far. */
  logLines: string[];
  /** Entries that the audit log received. */
  audited: AuditEntry[];
  /** Environment of the declared keys; a test may change it at any time. */
  env: Record<string, string | undefined>;
  call(
    method: string,
    path: string,
    options?: { token?: string; body?: unknown; headers?: Record<string, string> },
  ): Promise<Answer>;
  /** Shifts the database's clock; only in a world with one connection. */
  shiftClock(interval: string): Promise<void>;
  /**
   * Every text and binary column of every table; binary values in hexadecimal, base64 and as text.
   */
  dump(): Promise<string>;
  close(): Promise<void>;
}

export interface WorldOptions {
  /** `shiftClock` needs exactly one connection. */
  maxConnections?: number;
  localLogin?: boolean;
  env?: Record<string, string>;
  accounts?: Partial<AccountsOptions>;
  /** Null when the server's public address is not configured. */
  baseUrl?: null;
  admin?: Partial<AdminOptions>;
  ready?: () => Promise<void>;
}

const prefixes = ['accounts.', 'admin.', 'directory.'];

export async function startWorld(options: WorldOptions = {}): Promise<World> {
  // A busy machine is no busy database: statements may wait longer for the one session of the
  // embedded engine.
  const limits = {
    queueMs: 15_000,
    ...(options.maxConnections === undefined ? {} : { maxConnections: options.maxConnections }),
  };
  const place = await testDatabase({ limits });
  const { database } = place;
  const logLines: string[] = [];
  const log = createLog({ level: 'debug', redactor: createRedactor(), write: (line) => logLines.push(line) });

  const bureauSlice = bureaus({
    store: bureausStore(database),
    audit: { record: async () => undefined },
    changes: { bump: async () => undefined },
    findTokenOwner: async () => null,
    log,
  });
  const env: Record<string, string | undefined> = { ...options.env };
  const auditEntries: AuditEntry[] = [];
  const mailer = mail({ env: { get: (key) => env[key] } });
  let listeningUrl: string | null = null;
  const balances = creditsStore(database);
  const accountStores = accountsStores(database, bureauSlice);
  const administrators = adminStore(database);
  const accountSlice = accounts({
    stores: accountStores,
    bureaus: bureauSlice,
    log,
    clock: systemClock,
    fetch: (input, init) => fetch(input, init),
    env: { get: (key) => env[key] },
    mail: mailer,
    audit: { record: async (_tx, entry) => void auditEntries.push(entry) },
    changes: { bump: async () => undefined, generation: () => null },
    credits: {
      openAccount: (tx, { userId, bureauId }) => balances.openAccount(tx, userId, bureauId),
      openKey: balances.openKey,
      keys: balances.keys,
    },
    machines: { lockLive: (tx, credentialId) => administrators.lockLiveMachine(tx, credentialId) },
    localLogin: () => options.localLogin ?? true,
    baseUrl: () => (options.baseUrl === null ? null : listeningUrl),
    ...options.accounts,
  });
  const adminSlice = admin({
    scopeOperations,
    store: administrators,
    tokens: accountStores.accounts,
    audit: { record: async () => undefined, note: async () => undefined },
    changes: { bump: async () => undefined },
    bureaus: bureauSlice,
    log,
    ...options.admin,
  });
  const services = [bureauSlice, accountSlice, adminSlice].map(({ name, title, env }) => ({
    id: name,
    title,
    env,
  }));
  const document = await definition();
  const directorySlice = directory({
    services: () => services,
    ready: options.ready ?? (() => database.ping()),
    contract: document,
  });

  const contract = createContract<Identity>({
    definition: document,
    handlers: { ...accountSlice.handlers, ...adminSlice.handlers, ...directorySlice.handlers },
    identities: identityOfScheme,
    identify: async (bearer) =>
      parseToken(bearer) === 'adm' ? adminSlice.identify(bearer) : accountSlice.identify(bearer),
    guest: { kind: 'guest' },
    validateResponses: true,
  });
  const server = createServer({ contract, log, clock: systemClock, surface: 'gateway' });
  const { url, port } = await server.listen({ host: '127.0.0.1', port: 0 });
  listeningUrl = url;
  await bureauSlice.ensureLocal(url);

  return {
    url,
    database,
    bureaus: bureauSlice,
    accounts: accountSlice,
    admin: adminSlice,
    logLines,
    audited: auditEntries,
    env,
    call: (method, path, { token, body, headers = {} } = {}) =>
      new Promise((resolve, reject) => {
        const payload = typeof body === 'string' || body === undefined ? body : JSON.stringify(body);
        const request = httpRequest(
          {
            host: '127.0.0.1',
            port,
            method,
            path,
            headers: {
              ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
              ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
              ...headers,
            },
          },
          (response) => {
            let text = '';
            response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
            response.once('error', reject).once('end', () => {
              resolve({
                status: response.statusCode ?? 0,
                headers: response.headers,
                body: (isJson(response.headers) ? JSON.parse(text || '{}') : {}) as Json,
                text,
              });
            });
          },
        );
        request.once('error', reject);
        request.end(payload);
      }),
    async shiftClock(interval) {
      if (options.maxConnections !== 1)
        throw new Error('The clock is a connection’s own; this world has several.');
      await database.sql`select set_config('townhall.clock_shift', ${interval}, false)`;
    },
    dump: () => dump(database),
    async close() {
      await server.close({ drainMs: 1_000 });
      await accountSlice.close?.();
      mailer.close();
      await adminSlice.close?.();
      await place.close();
    },
  };
}

function isJson(headers: Answer['headers']): boolean {
  return String(headers['content-type']).startsWith('application/json');
}

async function definition(): Promise<object> {
  const file = new URL('../../../src/contract/gateway/bundle.json', import.meta.url);
  const bundle = JSON.parse(await readFile(file, 'utf8')) as {
    paths: Record<string, Record<string, { operationId?: string }>>;
  };
  const ownPaths = Object.entries(bundle.paths).filter(([, item]) =>
    Object.values(item).some(({ operationId = '' }) =>
      prefixes.some((prefix) => operationId.startsWith(prefix)),
    ),
  );
  return { ...bundle, paths: Object.fromEntries(ownPaths) };
}

async function dump({ sql }: Database): Promise<string> {
  const tables = await sql<{ name: string }[]>`
    select format('%I.%I', table_schema, table_name) as name
    from information_schema.tables where table_schema = 'gateway' and table_type = 'BASE TABLE'`;
  const texts: string[] = [];
  for (const { name } of tables) {
    for (const row of await sql.unsafe(`select * from ${name}`)) {
      for (const value of Object.values(row)) {
        if (Buffer.isBuffer(value))
          texts.push(value.toString('hex'), value.toString('base64'), value.toString('latin1'));
        else
          texts.push(
            typeof value === 'string'
              ? value
              : (JSON.stringify(value, (_key, member) =>
                  typeof member === 'bigint' ? `${member}` : member,
                ) ?? ''),
          );
      }
    }
  }
  return texts.join('\n');
}
