// Distinguishes tools that a provider runs itself, at a price that the catalog does not have, from tools that
// the caller runs, which cost only their tokens.

// Prefixes of tools that are billed by use, run another model, or read input of unknown size.
const unpricedTools = [
  'web_search',
  'web_fetch',
  'code_execution',
  'google_search',
  'enterprise_web_search',
  'google_maps',
  'url_context',
  'file_search',
  'vertex_rag_store',
  'advisor',
  'mcp',
];

/** Whether a tool of Anthropic or Google, by its name without the prefix, costs only its tokens. */
export function isOwnToolPriced(name: string): boolean {
  return !startsWithOneOf(name, unpricedTools);
}

function startsWithOneOf(text: string, prefixes: readonly string[]): boolean {
  return prefixes.some((prefix) => text.startsWith(prefix));
}

// Prefixes of the types that the caller runs. The provider runs all other types: it bills them separately, or
// they read input of unknown size.
const callerTypes = [
  'function',
  'custom',
  'namespace',
  'tool_search',
  'local_shell',
  'apply_patch',
  'bash_',
  'text_editor_',
  'memory_',
  'computer',
];
// OpenAI's former computer tool, which has a separate price.
const formerComputerType = 'computer_use_preview';

/** A tool of a request, in any format. */
export interface RequestTool {
  type?: unknown;
  /** The tools of a namespace, and of an item with the result of a tool search. */
  tools?: unknown;
  environment?: { type?: unknown } | null;
}

export function isRunByCaller(tool: RequestTool): boolean {
  // In Anthropic's format, tools of the caller may have no type.
  if (tool.type === undefined || tool.type === null) return true;
  if (typeof tool.type !== 'string') return false;
  if (tool.type === 'shell') return tool.environment?.type === 'local';
  return startsWithOneOf(tool.type, callerTypes) && !tool.type.startsWith(formerComputerType);
}
