// Statements of pg-boss run through postgres.js.
import { createSerializer } from '../async.ts';
import type { Sql } from './database.ts';

export type ExecuteSql = (text: string, values?: unknown[]) => Promise<{ rows: Record<string, unknown>[] }>;

/**
 * Runs pg-boss's own statements, among them blocks with BEGIN and COMMIT. They share one
 * connection, so they run one after the other, and a failed block is rolled back before the next.
 */
export function serializedExecutor(sql: Sql): ExecuteSql {
  const execute = createExecutor(sql);
  const serialize = createSerializer();
  return (text, values) =>
    serialize(async () => {
      try {
        return await execute(text, values);
      } catch (error) {
        await sql.unsafe('rollback').catch(() => undefined);
        throw error;
      }
    });
}

export function createExecutor(sql: Sql): ExecuteSql {
  return async (text, values = []) => {
    // pg-boss serializes most JSON itself, and postgres.js would serialize a
    // parameter of a json type again: those become text. Values without a cast, such
    // as a schedule's data and options, are objects that postgres.js serializes.
    const asText = new Set<number>();
    const statement = text.replaceAll(/\$(\d+)::(jsonb?)\b/g, (_, index: string, type: string) => {
      asText.add(Number(index));
      return `$${index}::text::${type}`;
    });
    const parameters = values.map((value, index) =>
      asText.has(index + 1) && isPlainObject(value) ? JSON.stringify(value) : value,
    );
    const result = await sql.unsafe<Record<string, unknown>[]>(statement, parameters as never[]);
    // Several statements in one string return a list of results.
    const rows = result.some((row) => Array.isArray(row))
      ? (result as unknown as Record<string, unknown>[][]).flat()
      : [...result];
    return { rows: rows.map(withoutBigints) };
  };
}

function isPlainObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** pg-boss expects int8 values as strings, which is how its own driver returns them. */
function withoutBigints(row: Record<string, unknown>): Record<string, unknown> {
  for (const [name, value] of Object.entries(row)) if (typeof value === 'bigint') row[name] = String(value);
  return row;
}
