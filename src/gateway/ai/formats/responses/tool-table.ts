// Maps the names of tools for models without namespaces. Codex groups the tools of an MCP server in a
// `namespace`; the model sees such a tool under one joined name, which is split again in the answer.
import { createHash } from 'node:crypto';
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord, type JsonRecord } from '../../../../kernel/json-value.ts';

/** A tool as the caller names it. */
export interface CallerTool {
  name: string;
  namespace?: string;
  /** Whether its input is plain text. */
  isCustom: boolean;
}

export interface ToolTable {
  /** The name under which the model sees the tool. */
  modelName(name: string, namespace: string | undefined): string;
  /** The tool that the model calls by this name; a plain function if the request has no such tool. */
  find(modelName: string): CallerTool;
  /** The names under which the model sees the tools of the namespace. */
  namesIn(namespace: string): readonly string[];
}

// OpenAI's limit, the lowest of all providers.
const maxNameLength = 64;

/** Maximum number of tools in all namespaces of a request. */
export const maxNamespaceTools = 1_024;

/** Ignores malformed tools and tools beyond the maximum; `toTools` refuses both. */
export function createToolTable({ tools }: Pick<ResponseRequest, 'tools'>): ToolTable {
  const byModelName = new Map<string, CallerTool>();
  const modelNames = new Map<string, string>();
  const namesByNamespace = new Map<string, string[]>();
  let remainingTools = maxNamespaceTools;
  const entries = (tools ?? []).map(asRecord);
  // Plain tools keep their names, so they come first.
  for (const tool of entries)
    if (tool['type'] !== 'namespace' && typeof tool['name'] === 'string')
      byModelName.set(tool['name'], callerTool(tool, tool['name']));
  for (const { type, name: namespace, tools: members } of entries) {
    if (type !== 'namespace' || typeof namespace !== 'string' || !Array.isArray(members)) continue;
    const names = namesByNamespace.get(namespace) ?? [];
    namesByNamespace.set(namespace, names);
    const allowedMembers = members.slice(0, remainingTools);
    remainingTools -= allowedMembers.length;
    for (const member of allowedMembers.map(asRecord)) {
      const name = member['name'];
      if (typeof name !== 'string') continue;
      const joinedName = joinNames(namespace, name);
      const modelName = byModelName.has(joinedName) ? shorten(joinedName, namespace, name) : joinedName;
      byModelName.set(modelName, { ...callerTool(member, name), namespace });
      modelNames.set(keyOf(namespace, name), modelName);
      names.push(modelName);
    }
  }
  return {
    modelName: (name, namespace) =>
      namespace === undefined ? name : (modelNames.get(keyOf(namespace, name)) ?? joinNames(namespace, name)),
    find: (modelName) => byModelName.get(modelName) ?? { name: modelName, isCustom: false },
    namesIn: (namespace) => namesByNamespace.get(namespace) ?? [],
  };
}

function callerTool({ type }: JsonRecord, name: string): CallerTool {
  return { name, isCustom: type === 'custom' };
}

function keyOf(namespace: string, name: string): string {
  return JSON.stringify([namespace, name]);
}

/** The namespace of an MCP server already ends with the separator. */
function joinNames(namespace: string, name: string): string {
  const joinedName = `${namespace}${namespace.endsWith('__') ? '' : '__'}${name}`;
  return joinedName.length <= maxNameLength ? joinedName : shorten(joinedName, namespace, name);
}

/** The hash keeps the name unique for each pair, and the same in every turn of the conversation. */
function shorten(joinedName: string, namespace: string, name: string): string {
  const hash = createHash('sha256').update(keyOf(namespace, name)).digest('hex').slice(0, 8);
  return `${joinedName.slice(0, maxNameLength - hash.length - 1)}_${hash}`;
}
