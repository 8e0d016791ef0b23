// The values of all tables as text, in which a test looks for secrets.
import type { Sql } from '../../src/kernel/data/database.ts';

/** The names of all tables in the schemas, each with its schema, quoted for SQL. */
export async function tableNames(sql: Sql, schemas: readonly string[]): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select format('%I.%I', table_schema, table_name) as name from information_schema.tables
    where table_schema = any (${[...schemas]}::text[]) and table_type = 'BASE TABLE' order by 1`;
  return tables.map(({ name }) => name);
}

/** The values of all columns of all tables. Binary values are in hexadecimal, in base64 and as text. */
export async function dumpTables(sql: Sql, schemas: readonly string[]): Promise<string> {
  const texts: string[] = [];
  for (const name of await tableNames(sql, schemas)) {
    const rows = await sql.unsafe(`select * from ${name}`);
    for (const row of rows) texts.push(...Object.values(row).flatMap(textsOf));
  }
  return texts.join('\n');
}

function textsOf(value: unknown): string[] {
  if (Buffer.isBuffer(value))
    return [value.toString('hex'), value.toString('base64'), value.toString('latin1')];
  if (typeof value === 'string') return [value];
  const bigintAsText = (_key: string, member: unknown) => (typeof member === 'bigint' ? `${member}` : member);
  return [JSON.stringify(value, bigintAsText) ?? ''];
}

/** The encodings in which a value could be stored. */
function formsOf(value: string): string[] {
  const bytes = Buffer.from(value, 'utf8');
  return [
    value,
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
    bytes.toString('hex'),
    encodeURIComponent(value),
  ];
}

/** The encodings of secrets that the text contains, each of the whole secret or of it without its prefix. */
export function findSecrets(storedText: string, secrets: readonly string[]): string[] {
  const payloads = secrets.map((secret) => secret.replace(/^(th_[a-z]+|lg[a-z])_/, ''));
  const forms = [...secrets, ...payloads].flatMap(formsOf);
  // A short text occurs by chance, and an empty one everywhere.
  if (forms.some((form) => form.length <= 8))
    throw new Error('Each secret must have more than eight characters.');
  return forms.filter((form) => storedText.includes(form));
}
