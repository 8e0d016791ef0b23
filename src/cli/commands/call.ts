// `townhall call`: calls any operation of the contract from the command line.
import { SettingError } from '../../kernel/settings.ts';
import { readOperations, surfaces, type CallableOperation, type Surface } from '../call/operations.ts';
import { defaultUrls } from '../call/local-edition.ts';
import { buildRequest } from '../call/request.ts';
import { callIntoFile, printResponse, sendRequest } from '../call/response.ts';
import { action, type Command, type CommandContext } from '../command-line/command.ts';
import { suggest } from '../command-line/suggestion.ts';

export const command: Command = {
  description: [
    'Calls an operation of a running server by its name in the contract, such as env.upsertVariable, and prints the answer.',
    'A NAME is a member of its path, query, headers or body; a VALUE other than a string is written as JSON.',
    'A file of a form is written as NAME=@FILE; --describe shows such members.',
    'Without an operation it lists all of them. The exit code is 1 when the server refuses the call or fails.',
  ],
  actions: [
    action({
      arguments: {
        surface: { placeholder: 'SERVER', choices: surfaces },
        operationId: { placeholder: 'OPERATION', isOptional: true },
        pairs: { placeholder: 'NAME=VALUE', isRest: true },
      },
      options: {
        describe: { kind: 'switch', summary: 'Print the members of the operation without a call.' },
        body: {
          kind: 'value',
          placeholder: 'JSON',
          summary: 'The whole body; @FILE reads it from a file, - from standard input.',
        },
        url: {
          kind: 'value',
          placeholder: 'URL',
          summary: `The server (${defaultUrls.gateway} for the gateway, ${defaultUrls.agent} for the agent).`,
        },
        'token-file': {
          kind: 'value',
          placeholder: 'FILE',
          summary: 'File with the credential to use instead of the environment or the local edition.',
        },
        output: {
          kind: 'value',
          placeholder: 'FILE',
          summary: 'Write the answer into a new file; images and audio need it, or a pipe.',
        },
        json: { kind: 'switch', summary: 'Print the answer or the error as one line of JSON.' },
      },
      async run({ arguments: { surface: surfaceName, operationId, pairs }, options, ...context }) {
        // `choices` admits only the names of the surfaces.
        const surface = surfaceName as Surface;
        const operations = await readOperations(surface);
        const output = { ...context, isJson: options.json };
        if (operationId === undefined) return printList(operations, output);
        const operation = findOperation(operations, surface, operationId);
        if (options.describe) return printDescription(operation, output);
        if (context.isFiltered === true) requireJsonAnswer(operation, options.output);
        const { body, url, 'token-file': tokenFile } = options;
        const { request, explainRefusal } = await buildRequest(operation, pairs, {
          surface,
          body,
          url,
          tokenFile,
          env: context.env,
        });
        if (options.output !== undefined)
          return callIntoFile(request, options.output, { ...output, explainRefusal });
        // Refuse before the call, since it may cost credits.
        if (operation.binaryTypes.length > 0 && context.output.isTerminal)
          throw new SettingError(
            `${operationId} answers with ${operation.binaryTypes.join(', ')}, which cannot be printed on a terminal; use --output FILE, or redirect standard output into a file or a pipe.`,
          );
        return printResponse(await sendRequest(request), { ...output, explainRefusal });
      },
    }),
  ],
  notes: [
    'TOWNHALL_URL and TOWNHALL_AGENT_URL in the environment name the servers. TOWNHALL_ADMIN_TOKEN is sent to operations of',
    'administrators and TOWNHALL_AGENT_TOKEN to operations of the agent. TOWNHALL_TOKEN is sent to all others, and to these',
    'when their own variable is not set.',
    'The token of a local edition that was started in this folder is sent to its own address only.',
    'Other users can read the arguments of a process: pass a secret with --body @FILE or --body -.',
    '',
    '  townhall call gateway ai.generateText model=local/guide prompt="How do I log in?"',
    '  townhall call gateway admin.login --body @credentials.json --json',
    '  townhall call gateway credits.grantCredits user_id=usr_… credits=500000 reason="a good start"',
    '  townhall call gateway ai.transcribeClientAudio model=openai/whisper-1 file=@talk.wav',
    '  townhall call agent sessions.list limit=20',
  ],
  readWords: readOperationIds,
};

/** The ids of the operations of each server. */
async function readOperationIds(): Promise<ReadonlyMap<string, readonly string[]>> {
  const lists = surfaces.map(async (surface) => {
    const operations = await readOperations(surface);
    return [surface, operations.map(({ operationId }) => operationId)] as const;
  });
  return new Map(await Promise.all(lists));
}

/** Refuses --jq for an answer that is not JSON. It does so before the call, which may cost credits. */
function requireJsonAnswer({ operationId, binaryTypes }: CallableOperation, outputFile: string | undefined) {
  if (outputFile !== undefined)
    throw new SettingError('--output writes the unfiltered answer; redirect the output of --jq instead.');
  if (binaryTypes.length > 0)
    throw new SettingError(`${operationId} answers with ${binaryTypes.join(', ')}; --jq filters JSON only.`);
}

type Output = CommandContext & { isJson: boolean };

function findOperation(
  operations: readonly CallableOperation[],
  surface: Surface,
  operationId: string,
): CallableOperation {
  const operation = operations.find((candidate) => candidate.operationId === operationId);
  if (operation !== undefined) return operation;
  const hint = suggest(
    operationId,
    operations.map((candidate) => candidate.operationId),
  );
  throw new SettingError(
    `the ${surface} has no operation "${operationId}"; "townhall call ${surface}" lists them.${hint}`,
  );
}

function serializeOperation({ operationId, method, path, summary, credentials }: CallableOperation): object {
  return { operation_id: operationId, method, path, summary, credentials };
}

function printList(operations: readonly CallableOperation[], { print, isJson }: Output): number {
  if (isJson) print(JSON.stringify(operations.map(serializeOperation)));
  else {
    const width = Math.max(...operations.map(({ operationId }) => operationId.length)) + 2;
    for (const { operationId, summary } of operations) print(`${operationId.padEnd(width)}${summary}`);
  }
  return 0;
}

function printDescription(operation: CallableOperation, { print, isJson }: Output): number {
  const { description, members } = operation;
  if (isJson) {
    const fields = members.map(({ isRequired, isFile, ...member }) => ({
      ...member,
      required: isRequired,
      file: isFile,
    }));
    print(JSON.stringify({ ...serializeOperation(operation), description, members: fields }));
  } else for (const line of describeOperation(operation)) print(line);
  return 0;
}

function describeOperation(operation: CallableOperation): string[] {
  const { operationId, method, path, summary, description, credentials, members } = operation;
  const callers = credentials.length === 0 ? 'for everybody' : `with ${credentials.join(' or ')}`;
  const lines = [`${operationId}: ${summary}`, `${method} ${path}, ${callers}`];
  if (description !== '') lines.push('', description.trim());
  if (members.length > 0) lines.push('');
  const width = Math.max(0, ...members.map(({ name }) => name.length)) + 2;
  for (const { name, place, isRequired, types, isFile, description: purpose } of members) {
    const type = isFile ? '@FILE' : types.join(' or ') || 'any';
    const kind = [type, place === 'body' ? '' : place, isRequired ? 'required' : '']
      .filter(Boolean)
      .join(', ');
    const sentence = purpose === '' ? '' : `: ${purpose.trim().split('\n', 1)[0]}`;
    lines.push(`  ${name.padEnd(width)}${kind}${sentence}`);
  }
  return lines;
}
