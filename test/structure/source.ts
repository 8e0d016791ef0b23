// Extracts from a source file, by TypeScript's parser, what the structure rules need: its
// imports, default exports, ambient state such as process.env, and the tables that its SQL names.

import path from 'node:path';
import ts from 'typescript';

export interface Import {
  /**
   * A path from the root of the repository for a relative import, else the name of a
   * package or `node:` module.
   */
  target: string;
  /** A path of the repository rather than a package. */
  local: boolean;
  /** Only `import type` counts: `import { type X }` still loads the module. */
  typeOnly: boolean;
  line: number;
}

/** One occurrence in a file, such as `Date.now()` or a table's name. */
export interface Mention {
  what: string;
  line: number;
}

export interface Source {
  path: string;
  imports: Import[];
  /** Default exports, enums and namespaces. */
  unwanted: Mention[];
  /** `process.env`, the wall clock, the global `fetch`. */
  ambient: Mention[];
  /** Tables and other qualified names of the database in strings, such as `gateway.accounts_users`. */
  tables: Mention[];
}

const tableName = /\b(?:gateway|agent)\.[a-z]+_[a-z_]+/g;

export function readSource(file: string, text: string): Source {
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.ESNext, true);
  const source: Source = { path: file, imports: [], unwanted: [], ambient: [], tables: [] };
  const names = boundNames(tree);
  const lineOf = (node: ts.Node) => tree.getLineAndCharacterOfPosition(node.getStart(tree)).line + 1;

  const addImport = (specifier: ts.Node | undefined, typeOnly: boolean) => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const local = specifier.text.startsWith('.');
    const target = local
      ? path.posix.join(path.posix.dirname(file), specifier.text)
      : packageOf(specifier.text);
    source.imports.push({ target, local, typeOnly, line: lineOf(specifier) });
  };

  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node))
      addImport(node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword);
    else if (ts.isExportDeclaration(node)) addImport(node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isImportTypeNode(node))
      addImport(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      addImport(node.arguments[0], false);

    const unwanted = unwantedAt(node);
    if (unwanted !== undefined) source.unwanted.push({ what: unwanted, line: lineOf(node) });
    const ambient = ambientAt(node, names);
    if (ambient !== undefined) source.ambient.push({ what: ambient, line: lineOf(node) });
    if (
      ts.isStringLiteralLike(node) ||
      ts.isTemplateHead(node) ||
      ts.isTemplateMiddle(node) ||
      ts.isTemplateTail(node)
    ) {
      for (const [tableText] of node.text.matchAll(tableName))
        source.tables.push({ what: tableText, line: lineOf(node) });
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return source;
}

function unwantedAt(node: ts.Node): string | undefined {
  if (ts.isExportAssignment(node)) return 'a default export';
  if (ts.isEnumDeclaration(node)) return 'an enum';
  // `declare module 'x'` and `declare global` describe existing modules and define nothing.
  if (
    ts.isModuleDeclaration(node) &&
    ts.isIdentifier(node.name) &&
    (node.flags & ts.NodeFlags.GlobalAugmentation) === 0
  )
    return 'a namespace';
  const modifiers = ts.canHaveModifiers(node) ? ts.getModifiers(node) : undefined;
  if (modifiers?.some(({ kind }) => kind === ts.SyntaxKind.DefaultKeyword) === true)
    return 'a default export';
  if (ts.isExportSpecifier(node) && node.name.text === 'default') return 'a default export';
  return undefined;
}

// A parameter or import named `fetch` was passed in, which is allowed.
function ambientAt(node: ts.Node, names: ReadonlySet<string>): string | undefined {
  if (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) {
    const name = `${node.expression.text}.${node.name.text}`;
    if (['process.env', 'Date.now', 'globalThis.fetch'].includes(name)) return name;
  }
  if (
    ts.isNewExpression(node) &&
    ts.isIdentifier(node.expression) &&
    node.expression.text === 'Date' &&
    (node.arguments?.length ?? 0) === 0
  )
    return 'new Date()';
  if (
    ts.isCallExpression(node) &&
    ts.isIdentifier(node.expression) &&
    node.expression.text === 'fetch' &&
    !names.has('fetch')
  )
    return 'fetch';
  return undefined;
}

function boundNames(tree: ts.SourceFile): Set<string> {
  const names = new Set<string>();
  const visit = (node: ts.Node): void => {
    const isBinding =
      ts.isParameter(node) ||
      ts.isVariableDeclaration(node) ||
      ts.isBindingElement(node) ||
      ts.isFunctionDeclaration(node) ||
      ts.isImportSpecifier(node);
    if (isBinding && node.name !== undefined && ts.isIdentifier(node.name)) names.add(node.name.text);
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return names;
}

function packageOf(specifier: string): string {
  if (specifier.startsWith('node:')) return specifier;
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}
