// The screen of `townhall start`: the addresses, the tokens, and five calls that work as pasted.

/** What the screen shows. The administrator is set only on the start that created it. */
export interface Welcome {
  gatewayUrl: string;
  agentUrl: string;
  userToken: string;
  agentToken: string;
  administrator: { adminId: string; password: string } | undefined;
  /** The warning about the login without credentials; absent when it is turned off. */
  notice?: string | undefined;
}

/** The lines of the screen. */
export function welcome({
  gatewayUrl,
  agentUrl,
  userToken,
  agentToken,
  administrator,
  notice,
}: Welcome): string[] {
  const json = "-H 'Content-Type: application/json'";
  const asUser = '-H "Authorization: Bearer $TOKEN"';
  const asOwner = '-H "Authorization: Bearer $AGENT"';
  return [
    '',
    `  gateway        ${gatewayUrl}`,
    `  agent          ${agentUrl}`,
    `  reference      ${gatewayUrl}/docs`,
    `  user token     ${userToken}`,
    `  agent token    ${agentToken}`,
    ...(administrator === undefined
      ? []
      : [`  administrator  ${administrator.adminId}, password ${administrator.password} (shown only now)`]),
    '',
    'Paste these into another terminal:',
    '',
    `TOKEN=${userToken}`,
    `AGENT=${agentToken}`,
    `curl ${gatewayUrl}/health`,
    `curl ${gatewayUrl}/v1/ai/models ${asUser}`,
    `curl ${gatewayUrl}/v1/ai/text ${asUser} ${json} -d '{"model": "local/guide", "prompt": "How do I add a model provider?"}'`,
    `curl -N ${gatewayUrl}/v1/ai/chat/completions ${asUser} ${json} -d '{"model": "local/guide", "stream": true, "messages": [{"role": "user", "content": "How do I log in?"}]}'`,
    `curl ${agentUrl}/api/execute ${asOwner} ${json} -d '{"instructions": "How do I stream an answer?"}'`,
    '',
    `Pages to chat with the agent: townhall console${agentUrl === 'http://127.0.0.1:5314' ? '' : ` --agent-url ${agentUrl}`} (in a checkout: npm run townhall -- console …)`,
    '',
    ...(notice === undefined ? [] : [notice, '']),
    'Ctrl-C ends it.',
  ];
}
