// Operations × identities: the refusal that the contract declares for each caller of each
// operation, and the server's answer. New operations are included automatically; only the
// credentials are handwritten.
import { createHash } from 'node:crypto';
import bundle from '../../src/contract/gateway/bundle.json' with { type: 'json' };
import { id } from '../../src/kernel/ids.ts';
import type { Sql } from '../../src/kernel/data/database.ts';
import { createToken } from '../../src/kernel/secrets/secret.ts';

export const callers = [
  'none',
  'garbage',
  'malformed',
  'expired',
  'revoked',
  'user',
  'user of another Bureau',
  'user of a paused Bureau',
  'admin',
  'machine with all scopes',
  'machine of another Bureau',
  'machine with unknown scopes',
  'agent',
  'user by key header',
  'admin by key header',
  'two credentials',
] as const;
export type Caller = (typeof callers)[number];

interface Operation {
  operationId: string;
  method: string;
  path: string;
  /** True when the operation needs no credential; its schemes are then optional. */
  isOpen: boolean;
  schemes: readonly string[];
  ignoresCredential: boolean;
  /** The declared statuses. */
  statuses: readonly string[];
}

/** `admitted`: authentication and authorization pass, so the answer is neither 401 nor 403. */
export type Expected = 'admitted' | { status: 400 | 401 | 403; code: string };

export interface Finding {
  operation: Operation;
  caller: Caller;
  expected: Expected;
  status: number;
  code: string | null;
  /** How the answer differs from the contract; null when it does not. */
  mismatch: string | null;
}

interface DeclaredOperation {
  operationId: string;
  security: Record<string, string[]>[];
  responses: Record<string, unknown>;
  'x-ignores-credential'?: boolean;
}

export function operations(): Operation[] {
  return Object.entries(bundle.paths as unknown as Record<string, Record<string, DeclaredOperation>>).flatMap(
    ([path, item]) =>
      ['get', 'post', 'put', 'patch', 'delete'].flatMap((method) => {
        const operation = item[method];
        if (operation === undefined) return [];
        return {
          operationId: operation.operationId,
          method: method.toUpperCase(),
          path,
          isOpen:
            operation.security.length === 0 ||
            operation.security.some((requirement) => Object.keys(requirement).length === 0),
          schemes: operation.security.flatMap((requirement) => Object.keys(requirement)),
          ignoresCredential: operation['x-ignores-credential'] === true,
          statuses: Object.keys(operation.responses),
        };
      }),
  );
}

export function expectedOf(
  operation: Pick<Operation, 'isOpen' | 'schemes' | 'ignoresCredential'>,
  caller: Caller,
): Expected {
  if (operation.ignoresCredential) return 'admitted';
  const { isOpen } = operation;
  const admits = (scheme: string): Expected =>
    isOpen || operation.schemes.includes(scheme)
      ? 'admitted'
      : { status: 403, code: 'forbidden_for_identity' };
  switch (caller) {
    case 'none':
      return isOpen ? 'admitted' : { status: 401, code: 'authentication_required' };
    case 'user':
    case 'user of another Bureau':
      return admits('userToken');
    case 'user of a paused Bureau':
      return { status: 403, code: 'bureau_paused' };
    case 'admin':
      return admits('adminSession');
    case 'machine with all scopes':
    case 'machine of another Bureau':
      return admits('machineCredential');
    case 'user by key header':
      return takesKeyHeader(operation) ? 'admitted' : expectedOf(operation, 'none');
    case 'admin by key header':
      return takesKeyHeader(operation)
        ? { status: 403, code: 'forbidden_for_identity' }
        : expectedOf(operation, 'none');
    case 'two credentials':
      return takesKeyHeader(operation)
        ? { status: 400, code: 'invalid_request' }
        : expectedOf(operation, 'user');
    case 'machine with unknown scopes':
      return isOpen ? 'admitted' : { status: 403, code: 'forbidden_for_identity' };
    // Credentials that are malformed, no longer valid, or those of an agent.
    case 'garbage':
    case 'malformed':
    case 'expired':
    case 'revoked':
    case 'agent':
      return { status: 401, code: 'invalid_token' };
  }
}

/** Whether the operation reads the key header; others ignore it. */
function takesKeyHeader({ schemes }: Pick<Operation, 'schemes'>): boolean {
  return schemes.includes('xApiKey');
}

/** Creates the Bureaus that the callers need. */
export async function insertBureaus(sql: Sql): Promise<void> {
  await sql`
    insert into gateway.bureaus_records (bureau_id, name, server_url, state)
    values ('matrix_one', 'Matrix', 'https://matrix.example', 'active'),
      ('matrix_other', 'Matrix', 'https://matrix.example', 'active'),
      ('matrix_paused', 'Matrix', 'https://matrix.example', 'paused')
    on conflict do nothing`;
}

/**
 * Calls every operation as every caller. Each call uses its own credential, since some operations
 * revoke the credential of their call.
 */
export async function callAll(url: string, sql: Sql): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const operation of operations()) {
    for (const caller of callers)
      findings.push(await callAs(url, operation, { caller, credentials: await credentialsOf(sql, caller) }));
  }
  return findings;
}

async function callAs(
  url: string,
  operation: Operation,
  { caller, credentials }: { caller: Caller; credentials: Record<string, string> },
): Promise<Finding> {
  const abort = new AbortController();
  const answer = await fetch(url + operation.path.replace(/\{\w+\}/g, 'nothing'), {
    method: operation.method,
    headers: {
      ...credentials,
      ...(operation.method === 'GET' ? {} : { 'content-type': 'application/json' }),
    },
    // An empty body: a caller with access gets a validation error or finds nothing, and changes
    // nothing.
    ...(operation.method === 'GET' ? {} : { body: '{}' }),
    redirect: 'manual',
    signal: abort.signal,
  });
  const isJson = answer.headers.get('content-type')?.startsWith('application/json') === true;
  const code = isJson ? codeOf((await answer.json()) as ErrorBody) : null;
  const expected = expectedOf(operation, caller);
  const mismatch = describeMismatch(operation, expected, {
    status: answer.status,
    code,
    challenge: answer.headers.get('www-authenticate'),
  });
  // Some streams have no end.
  abort.abort();
  return { operation, caller, expected, status: answer.status, code, mismatch };
}

interface ErrorBody {
  error?: { code?: string | number; details?: { reason?: string }[] };
}

/** Errors in Google's shape have the status where ours have the code. */
function codeOf({ error }: ErrorBody): string | null {
  const code = typeof error?.code === 'number' ? error.details?.[0]?.reason : error?.code;
  return code ?? null;
}

function describeMismatch(
  operation: Operation,
  expected: Expected,
  { status, code, challenge }: { status: number; code: string | null; challenge: string | null },
): string | null {
  if (!operation.statuses.includes(String(status))) return `${status} is not declared`;
  if (status >= 500) return `it answered ${status}`;
  if (expected !== 'admitted')
    return status === expected.status && code === expected.code && (status === 401) === (challenge !== null)
      ? null
      : `expected ${expected.status} ${expected.code}`;
  // Past these checks an operation may still refuse, for example another user's resource, but with
  // another code.
  const isAccessCheck = [
    'authentication_required',
    'invalid_token',
    'forbidden_for_identity',
    'bureau_paused',
  ].includes(code ?? '');
  return isAccessCheck ? 'expected access' : null;
}

/** The headers of a fresh credential of the caller. */
export async function credentialsOf(sql: Sql, caller: Caller): Promise<Record<string, string>> {
  const keyHeader = 'x-api-key';
  switch (caller) {
    case 'user by key header':
      return { [keyHeader]: await insertUserToken(sql, 'matrix_one') };
    case 'admin by key header':
      return { [keyHeader]: await insertAdminSession(sql) };
    case 'two credentials':
      return {
        authorization: `Bearer ${await insertUserToken(sql, 'matrix_one')}`,
        [keyHeader]: await insertUserToken(sql, 'matrix_one'),
      };
    default: {
      const authorization = await credentialOf(sql, caller);
      return authorization === null ? {} : { authorization };
    }
  }
}

type BearerCaller = Exclude<Caller, 'user by key header' | 'admin by key header' | 'two credentials'>;

async function credentialOf(sql: Sql, caller: BearerCaller): Promise<string | null> {
  switch (caller) {
    case 'none':
      return null;
    case 'garbage':
      return 'Bearer nonsense';
    case 'malformed':
      return `Basic ${Buffer.from('user:password').toString('base64')}`;
    case 'agent':
      return `Bearer ${createToken('agt')}`;
    case 'admin':
      return `Bearer ${await insertAdminSession(sql)}`;
    case 'machine with all scopes':
      return `Bearer ${await insertMachineCredential(sql, 'matrix_one', scopes())}`;
    case 'machine of another Bureau':
      return `Bearer ${await insertMachineCredential(sql, 'matrix_other', scopes())}`;
    case 'machine with unknown scopes':
      return `Bearer ${await insertMachineCredential(sql, 'matrix_one', ['nothing.known'])}`;
    case 'user of another Bureau':
      return `Bearer ${await insertUserToken(sql, 'matrix_other')}`;
    case 'user of a paused Bureau':
      return `Bearer ${await insertUserToken(sql, 'matrix_paused')}`;
    case 'expired':
    case 'revoked':
      return `Bearer ${await insertUserToken(sql, 'matrix_one', caller)}`;
    case 'user':
      return `Bearer ${await insertUserToken(sql, 'matrix_one')}`;
  }
}

async function insertUserToken(sql: Sql, bureauId: string, end?: 'expired' | 'revoked'): Promise<string> {
  const [userId, credential] = [id('usr'), createToken('usr')];
  await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, ${bureauId})`;
  await sql`
    insert into gateway.accounts_tokens (token_id, user_id, kind, digest, last4, expires_at, revoked_at)
    values (${id('tok')}, ${userId}, 'user', ${digest(credential)}, ${credential.slice(-4)},
      now() + make_interval(hours => ${end === 'expired' ? -1 : 1}),
      ${end === 'revoked' ? sql`now()` : null})`;
  return credential;
}

/** All scopes that the contract explains. */
function scopes(): string[] {
  return Object.keys(bundle.components.securitySchemes.machineCredential['x-scopes']);
}

async function insertMachineCredential(
  sql: Sql,
  bureauId: string,
  scopeNames: readonly string[],
): Promise<string> {
  const credential = createToken('adm');
  await sql`
    insert into gateway.admin_machines (credential_id, bureau_id, scopes, digest, last4, expires_at)
    values (${id('adm')}, ${bureauId}, ${scopeNames}::text[], ${digest(credential)},
      ${credential.slice(-4)}, now() + interval '1 hour')`;
  return credential;
}

async function insertAdminSession(sql: Sql): Promise<string> {
  const credential = createToken('adm');
  const [administrator] = await sql<
    { adminId: string }[]
  >`select admin_id as "adminId" from gateway.admin_administrators limit 1`;
  if (!administrator) throw new Error('The table needs a server with an administrator.');
  await sql`
    insert into gateway.admin_sessions (session_id, admin_id, digest, last4, expires_at)
    values (${id('adm')}, ${administrator.adminId}, ${digest(credential)}, ${credential.slice(-4)},
      now() + interval '1 hour')`;
  return credential;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

const shortNames: Partial<Record<Caller, string>> = {
  'user of a paused Bureau': 'paused',
  'user of another Bureau': 'other',
  'machine with all scopes': 'machine',
  'machine of another Bureau': 'machine 2',
  'machine with unknown scopes': 'no scope',
  'user by key header': 'user key',
  'admin by key header': 'admin key',
  'two credentials': 'both',
};

/** The table as text: a line per operation, a column per caller. */
export function renderTable(findings: readonly Finding[]): string {
  const byOperation = Map.groupBy(findings, ({ operation }) => operation.operationId);
  const width = Math.max(...[...byOperation.keys()].map((operationId) => operationId.length));
  const headings = callers.map((caller) => shortNames[caller] ?? caller);
  const line = (name: string, cells: readonly string[]) => {
    const columns = cells.map((cell, index) => cell.padEnd(Math.max((headings[index] ?? '').length, 4)));
    return [name.padEnd(width), ...columns].join('  ').trimEnd();
  };
  const rows = [...byOperation].map(([operationId, row]) =>
    line(
      operationId,
      row.map(({ status, mismatch }) => `${status}${mismatch === null ? '' : '!'}`),
    ),
  );
  return [line('', headings), ...rows].join('\n');
}
