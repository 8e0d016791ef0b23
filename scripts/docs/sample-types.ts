// Type-checks the TypeScript of the documentation: the examples as they are, and every fenced block
// of a guide as a module of its own with the globals of sample-world.ts.

import path from 'node:path';
import ts from 'typescript';

export interface Fence {
  /** The file of the documentation and the line at which the block's code begins. */
  file: string;
  line: number;
  code: string;
}

/**
 * The blocks marked `ts` of a Markdown file, except those from an example, which is checked itself.
 */
export function fencesOf(markdown: string, file: string): Fence[] {
  return Array.from(
    markdown.matchAll(/(?<!<!-- example: [^>\n]* -->\n)^```ts\n([\s\S]*?)\n```$/gm),
    (match) => ({
      file,
      line: markdown.slice(0, match.index).split('\n').length + 1,
      code: match[1] ?? '',
    }),
  );
}

/** The compiler's errors with their positions in the documentation. */
export function checkTypes(
  root: string,
  { fences, examples }: { fences: readonly Fence[]; examples: readonly string[] },
): string[] {
  const settings = readSettings(root);
  // Each block pretends to be a file in examples/, so that it resolves the packages of the examples.
  const blocks = new Map(
    fences.map((fence, index) => [path.join(root, 'examples', `sample-${index}.ts`), fence]),
  );
  const program = ts.createProgram(
    [path.join(import.meta.dirname, 'sample-world.ts'), ...blocks.keys(), ...examples],
    settings,
    createHost(settings, blocks),
  );
  return [...blocks.keys(), ...examples].flatMap((name) => {
    const source = program.getSourceFile(name);
    const diagnostics = [
      ...program.getSyntacticDiagnostics(source),
      ...program.getSemanticDiagnostics(source),
    ];
    return diagnostics.map(({ start, messageText }) => {
      const line =
        source === undefined || start === undefined ? 0 : source.getLineAndCharacterOfPosition(start).line;
      const fence = blocks.get(path.normalize(name));
      const place =
        fence === undefined
          ? `${path.relative(root, name)}:${line + 1}`
          : `${fence.file}:${fence.line + line}`;
      return `${place}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    });
  });
}

function readSettings(root: string): ts.CompilerOptions {
  const { config } = ts.readConfigFile(path.join(root, 'tsconfig.json'), (name) => ts.sys.readFile(name)) as {
    config: unknown;
  };
  const { options } = ts.parseJsonConfigFileContent({ ...(config as object), include: [] }, ts.sys, root);
  // A sample need not use everything that it declares.
  return { ...options, noUnusedLocals: false, noUnusedParameters: false };
}

/** A compiler host for which each block is a file. */
function createHost(settings: ts.CompilerOptions, blocks: ReadonlyMap<string, Fence>): ts.CompilerHost {
  const host = ts.createCompilerHost(settings);
  const { fileExists, readFile } = host;
  host.fileExists = (name) => blocks.has(path.normalize(name)) || fileExists(name);
  host.readFile = (name) => {
    const fence = blocks.get(path.normalize(name));
    return fence === undefined ? readFile(name) : `${fence.code}\nexport {};\n`;
  };
  const getSourceFile = host.getSourceFile.bind(host);
  host.getSourceFile = (name, ...rest) => {
    const text = blocks.has(path.normalize(name)) ? host.readFile(name) : undefined;
    return text === undefined ? getSourceFile(name, ...rest) : ts.createSourceFile(name, text, rest[0]);
  };
  return host;
}
