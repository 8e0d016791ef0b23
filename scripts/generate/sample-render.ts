// Renders a sample request for curl, the TypeScript client and the standard library of Python.

import { pythonLiteral, shellJson, typeScriptLiteral } from './sample-literals.ts';
import type { Json, SampleRequest } from './sample-request.ts';

export function renderCurl({
  method,
  baseUrl,
  target,
  tokenVariable,
  headers,
  choice,
  body,
  answer,
}: SampleRequest): string {
  const flags = answer === 'events' ? ' -N' : '';
  const verb = method === 'GET' || (method === 'POST' && body !== undefined) ? '' : ` -X ${method}`;
  const address = `${baseUrl}${target}`;
  const lines = [
    `curl${flags}${verb} ${/[?&]/.test(address) ? `'${address}'` : address}`,
    ...(tokenVariable === undefined ? [] : [`-H "Authorization: Bearer $${tokenVariable}"`]),
    ...Object.entries({ ...headers, ...choice.headers }).map(([name, value]) => `-H '${name}: ${value}'`),
    ...(body === undefined ? [] : ["-H 'Content-Type: application/json'", `-d ${shellJson(body)}`]),
    ...(answer === 'media' ? ['--output answer'] : []),
  ];
  return lines.join(' \\\n  ');
}

export function renderTypeScript(request: SampleRequest): string {
  const { surface, baseUrl, tokenVariable, answer } = request;
  const isGateway = surface.name === 'gateway';
  const create = isGateway ? 'createGatewayClient' : 'createAgentClient';
  const module = isGateway
    ? '@townhall/gateway'
    : `@townhall/agent${surface.name === 'agent-classic' ? '/classic' : ''}`;
  const client =
    tokenVariable === undefined
      ? [`const client = ${create}({ baseUrl: '${baseUrl}' });`]
      : [
          `const client = ${create}({`,
          `  baseUrl: '${baseUrl}',`,
          `  token: process.env['${tokenVariable}'],`,
          '});',
        ];
  const imports = [
    ...(answer === 'media' ? ["import { writeFile } from 'node:fs/promises';"] : []),
    `import { ${create} } from '${module}';`,
  ];
  return [...imports, '', ...client, '', typeScriptCall(request)].join('\n');
}

const statementStarts: Partial<Record<SampleRequest['answer'], string>> = {
  events: 'for await (const event of ',
  nothing: 'await ',
};

function typeScriptCall({ id, pathMembers, query, headers, body, answer, choice }: SampleRequest): string {
  const members = { ...pathMembers, ...(body === undefined ? query : (body as Record<string, Json>)) };
  const options: Record<string, Json> = {
    ...(body === undefined || Object.keys(query).length === 0 ? {} : { query }),
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
  };
  const start = statementStarts[answer] ?? 'const answer = await ';
  const name = `client.${id}`;
  const hasOptions = Object.keys(options).length > 0;
  // An empty body, and no members before options, are written as `{}`.
  const hasMembers = hasOptions || body !== undefined || Object.keys(members).length > 0;
  const argumentTexts = [...(hasMembers ? [members] : []), ...(hasOptions ? [options] : [])].map((value) =>
    typeScriptLiteral(value, start.length + name.length + 4),
  );
  const call = choice.call ?? `${name}(${argumentTexts.join(', ')})`;
  if (answer === 'events') return `${start}${call}) {\n  console.log(event);\n}`;
  if (answer === 'nothing') return `${start}${call};`;
  if (answer === 'media')
    return `${start}${call};\nawait writeFile('answer', Buffer.from(await answer.arrayBuffer()));`;
  return `${start}${call};\nconsole.log(answer);`;
}

export function renderPython(request: SampleRequest): string {
  const { method, baseUrl, target, tokenVariable, body, answer } = request;
  const headers = pythonHeaders(request);
  const parts = [
    `    "${baseUrl}${target}",`,
    ...(method === (body === undefined ? 'GET' : 'POST') ? [] : [`    method="${method}",`]),
    ...(headers.length === 0
      ? []
      : ['    headers={', ...headers.map((line) => `        ${line},`), '    },']),
    ...(body === undefined ? [] : [`    data=json.dumps(${pythonLiteral(body, 20, 1)}).encode(),`]),
  ];
  const modules = [
    ...(body !== undefined || answer === 'json' ? ['json'] : []),
    ...(tokenVariable === undefined ? [] : ['os']),
    'urllib.request',
  ];
  return [
    ...modules.map((name) => `import ${name}`),
    '',
    'request = urllib.request.Request(',
    ...parts,
    ')',
    'with urllib.request.urlopen(request) as response:',
    ...pythonReading[answer].map((line) => `    ${line}`),
  ].join('\n');
}

const pythonReading: Readonly<Record<SampleRequest['answer'], readonly string[]>> = {
  json: ['print(json.load(response))'],
  events: ['for line in response:', '    print(line.decode(), end="")'],
  media: ['with open("answer", "wb") as file:', '    file.write(response.read())'],
  nothing: ['print(response.status)'],
};

function pythonHeaders({ tokenVariable, headers, choice, body }: SampleRequest): string[] {
  return [
    ...(tokenVariable === undefined ? [] : [`"Authorization": f"Bearer {os.environ['${tokenVariable}']}"`]),
    ...Object.entries({ ...headers, ...choice.headers }).map(
      ([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`,
    ),
    ...(body === undefined ? [] : ['"Content-Type": "application/json"']),
  ];
}
