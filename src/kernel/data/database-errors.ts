// Distinguishes transient failures of the database, which become a 503, from errors in a statement.
import { Problem } from '../problem.ts';
import { UnresponsiveServerError } from './connection.ts';

// SQLSTATE classes and codes of transient failures: connection errors, exhausted resources,
// shutdown or startup, a statement or lock timeout, a transaction that was idle for too long, a
// deadlock, a read-only replica.
const transientClasses = ['08', '53', '57', '58'];
const transientCodes = new Set(['25006', '25P03', '40P01', '55P03']);
// While a restore replaces the tables: an unknown table, schema, function or type.
const missingCodes = new Set(['42P01', '3F000', '42883', '42704']);
const ownSchema = /"?\b(gateway|agent|pgboss)\b"?(\.| )/;
const replacedRelation = /^(cache lookup failed|could not open relation with OID)/;
const connectionErrorCodes = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
  'CONNECTION_ENDED',
  'CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_WRITE_AFTER_END',
]);

/**
 * The error for a caller: a Problem when the failure is transient, else the error itself, an SQL
 * error with its `code`. `isSqlError` distinguishes errors of the server from errors of the connection.
 */
export function databaseProblem(error: unknown, { isSqlError }: { isSqlError: boolean }): unknown {
  if (error instanceof Problem) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const isTransient = isSqlError
    ? isTransientSqlError(code, error instanceof Error ? error.message : '')
    : error instanceof UnresponsiveServerError || connectionErrorCodes.has(code);
  return isTransient ? unavailableProblem('The database is unavailable at the moment.', error) : error;
}

function isTransientSqlError(code: string, message: string): boolean {
  if (transientClasses.includes(code.slice(0, 2)) || transientCodes.has(code)) return true;
  // A restore is replacing the tables.
  if (missingCodes.has(code)) return ownSchema.test(message);
  return code === 'XX000' && replacedRelation.test(message);
}

/** Whether a statement failed because a row that it refers to does not exist. */
export function isForeignKeyViolation(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23503';
}

/** The 503 for an unavailable database; it tells the client to retry after two seconds. */
export function unavailableProblem(message: string, cause?: unknown): Problem {
  return new Problem('unavailable', 'database_unavailable', message, {
    cause,
    headers: { 'retry-after': '2' },
  });
}
