// Converts PostgreSQL arrays from and to text. postgres.js can do it too, but only after it has queried
// the server's types on every new connection, and a connection that is lost during that query causes
// an unhandled rejection in postgres.js.

type Element = string | null | Element[];

/** The elements of `{a,"b c",NULL,{d}}`, each through `parse`. */
export function parseArray<T>(text: string, parse: (element: string) => T): unknown[] {
  let position = 0;
  // The prefix of an array whose lower bound is not 1: `[0:1]={…}`.
  if (text.startsWith('[')) position = text.indexOf('=') + 1;
  return readList().map(convert);

  function convert(element: Element): unknown {
    if (Array.isArray(element)) return element.map(convert);
    return element === null ? null : parse(element);
  }

  function readList(): Element[] {
    const elements: Element[] = [];
    position += 1;
    while (position < text.length && text[position] !== '}') {
      if (text[position] === ',') position += 1;
      else if (text[position] === '{') elements.push(readList());
      else if (text[position] === '"') elements.push(readQuoted());
      else elements.push(readBare());
    }
    position += 1;
    return elements;
  }

  function readQuoted(): string {
    let value = '';
    for (position += 1; position < text.length && text[position] !== '"'; position += 1) {
      if (text[position] === '\\') position += 1;
      value += text[position];
    }
    position += 1;
    return value;
  }

  function readBare(): string | null {
    const start = position;
    while (position < text.length && text[position] !== ',' && text[position] !== '}') position += 1;
    const value = text.slice(start, position);
    return value === 'NULL' ? null : value;
  }
}

/** The literal of a list; `null` and `undefined` become NULL, nested lists nested arrays. */
export function formatArray(list: readonly unknown[], isJson = false): string {
  const elements = list.map((element) => {
    if (element === null || element === undefined) return 'NULL';
    if (Array.isArray(element) && !isJson) return formatArray(element);
    return `"${formatElement(element, isJson).replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
  });
  return `{${elements.join(',')}}`;
}

function formatElement(element: unknown, isJson: boolean): string {
  if (isJson) return JSON.stringify(element);
  if (element instanceof Date) return element.toISOString();
  if (element instanceof Uint8Array) return `\\x${Buffer.from(element).toString('hex')}`;
  return String(element);
}
