// Tool names in namespaces, mapped to names for the model and back.
import { describe, expect, test } from 'vitest';
import {
  createToolTable,
  maxNamespaceTools,
} from '../../../../src/gateway/ai/formats/responses/tool-table.ts';
import { toToolChoice } from '../../../../src/gateway/ai/formats/responses/tools.ts';

const functions = (...names: string[]) => names.map((name) => ({ type: 'function', name }));
const namespace = (name: string, ...names: string[]) => ({
  type: 'namespace',
  name,
  tools: functions(...names),
});

describe('a tool of a namespace', () => {
  test('has a name for the model that maps back to its namespace and name', () => {
    const table = createToolTable({ tools: [namespace('crm', 'find'), namespace('mcp__a__', 'find')] });
    expect(table.modelName('find', 'crm')).toBe('crm__find');
    expect(table.modelName('find', 'mcp__a__')).toBe('mcp__a__find');
    expect(table.find('crm__find')).toEqual({ name: 'find', namespace: 'crm', isCustom: false });
  });

  test('has a unique name if a plain tool already has the joined name', () => {
    const table = createToolTable({ tools: [namespace('crm', 'find'), ...functions('crm__find')] });
    const modelName = table.modelName('find', 'crm');
    expect(modelName).not.toBe('crm__find');
    expect(table.find(modelName)).toMatchObject({ name: 'find', namespace: 'crm' });
    expect(table.find('crm__find')).toEqual({ name: 'crm__find', isCustom: false });
  });

  test('has a unique name if two pairs join to the same name', () => {
    const table = createToolTable({ tools: [namespace('a', 'b__c'), namespace('a__b', 'c')] });
    const names = [table.modelName('b__c', 'a'), table.modelName('c', 'a__b')];
    expect(new Set(names).size).toBe(2);
    expect(names.map((name) => table.find(name).namespace)).toEqual(['a', 'a__b']);
  });

  test('has a stable name of at most 64 characters', () => {
    const [longName, otherName] = ['x'.repeat(128), `${'x'.repeat(127)}y`];
    const table = createToolTable({ tools: [namespace('crm', longName, otherName)] });
    expect(table.modelName(longName, 'crm')).toHaveLength(64);
    expect(table.modelName(longName, 'crm')).not.toBe(table.modelName(otherName, 'crm'));
    expect(createToolTable({}).modelName(longName, 'crm')).toBe(table.modelName(longName, 'crm'));
  });

  test('has no name beyond the maximum of all namespaces together', () => {
    const names = Array.from({ length: maxNamespaceTools }, (_, index) => `tool_${index}`);
    const table = createToolTable({ tools: [namespace('a', ...names), namespace('b', 'find')] });
    expect(table.namesIn('a')).toHaveLength(maxNamespaceTools);
    expect(table.namesIn('b')).toEqual([]);
  });
});

describe('a choice of allowed tools', () => {
  test('reads a repeated namespace once', () => {
    const table = createToolTable({ tools: [namespace('crm', 'find', 'add')] });
    let reads = 0;
    const countingTable = {
      ...table,
      namesIn(name: string) {
        reads += 1;
        return table.namesIn(name);
      },
    };
    const tools = Array.from({ length: 100 }, () => ({ type: 'namespace', name: 'crm' }));
    const { allowedTools } = toToolChoice({ type: 'allowed_tools', tools }, countingTable);
    expect([...(allowedTools ?? [])]).toEqual(['crm__find', 'crm__add']);
    expect(reads).toBe(1);
  });
});
