// What a command takes, read from its own help: so completions and suggestions can say nothing that the help does not.

export interface CommandShape {
  /** The words that may follow one another, such as `token` and `create`; each beginning of one is a path too. */
  paths: readonly (readonly string[])[];
  /** With their dashes. */
  flags: readonly string[];
}

/** The shape of `townhall NAME` by the text of its help. */
export function shapeOf(name: string, help: string): CommandShape {
  const paths = help.split('\n').flatMap((line) => {
    const behind = new RegExp(`^(?:Usage:)?\\s+townhall ${name}(?: (.*))?$`).exec(line)?.[1];
    return behind === undefined ? [] : expand(behind.split(/\s{2,}/, 1)[0]?.split(' ') ?? []);
  });
  const flags = new Set([...help.matchAll(/(?<![\w-])--[a-z][a-z0-9-]*/g)].map(([flag]) => flag));
  flags.add('--help');
  return { paths: paths.filter((path) => path.length > 0), flags: [...flags].sort() };
}

/** The words that may stand behind the given ones. */
export function wordsBehind({ paths }: CommandShape, before: readonly string[]): string[] {
  const next = paths
    .filter((path) => path.length > before.length && before.every((word, index) => path[index] === word))
    .map((path) => path[before.length] as string);
  return [...new Set(next)];
}

// `token create|list` is two paths; what is in capitals, in brackets or an option ends one.
function expand(words: readonly string[]): string[][] {
  let paths: string[][] = [[]];
  for (const word of words) {
    if (!/^[a-z][a-z0-9-]*(?:\|[a-z][a-z0-9-]*)*$/.test(word)) break;
    paths = word.split('|').flatMap((choice) => paths.map((path) => [...path, choice]));
  }
  return paths;
}
