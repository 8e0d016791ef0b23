// Rejects members of a request that must not reach a provider: members that redirect the call or
// its credential, members without a known price, and other spellings of members that the gateway
// reads.
import { Problem } from '../../../kernel/problem.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import { foldName } from './member-names.ts';

// All sets hold folded names, as servers and their libraries may ignore case and underscores.
const addressesAndCredentials = new Set([
  'apibase',
  'apikey',
  'apikeys',
  'apitype',
  'apiurl',
  'apiversion',
  'apiendpoint',
  'baseurl',
  'baseuri',
  'url',
  'uri',
  'endpoint',
  'endpointurl',
  'azureendpoint',
  'host',
  'proxy',
  'proxyurl',
  'headers',
  'extraheaders',
  'defaultheaders',
  'httpheaders',
  'extraquery',
  'authorization',
  'auth',
  'bearer',
  'bearertoken',
  'token',
  'accesstoken',
  'secret',
  'clientsecret',
  'password',
  'credential',
  'credentials',
  'organization',
  'azureadtoken',
  'azureadtokenprovider',
  'azurescope',
  'azureusername',
  'azurepassword',
  'tenantid',
  'clientid',
  'virtualkey',
  'customhost',
  'vertexcredentials',
  'vertexproject',
  'vertexlocation',
  'awsaccesskeyid',
  'awssecretaccesskey',
  'awssessiontoken',
  'awsprofilename',
  'awsrolename',
  'awssessionname',
  'awswebidentitytoken',
  'awsexternalid',
  'awsregionname',
  'awsstsendpoint',
  'awsbedrockruntimeendpoint',
  'customllmprovider',
]);

// Routers such as OpenRouter and LiteLLM read these to choose another model,
// provider or price, or to drop members such as the output limit.
const routingMembers = new Set([
  'models',
  'modellist',
  'modelinfo',
  'modelgroup',
  'modelaliasmap',
  'basemodel',
  'plugins',
  'provider',
  'provideroptions',
  'gateway',
  'preset',
  'route',
  'routersettings',
  'userconfig',
  'fallbacks',
  'fallbackmodels',
  'defaultfallbacks',
  'disablefallbacks',
  'contextwindowfallbacks',
  'contextwindowfallbackdict',
  'contentpolicyfallbacks',
  'specificdeployment',
  'deployment',
  'deploymentid',
  'uselitellmproxy',
  'proxyserverrequest',
  'overrideparams',
  'dropparams',
  'additionaldropparams',
  'modifyparams',
  'allowedopenaiparams',
  'inputcostpertoken',
  'outputcostpertoken',
  'inputcostpersecond',
  'outputcostpersecond',
]);
const routingPrefixes = /^(?:mock|litellm)/;

// Members that the gateway reads or whose absence it relies on, by their folded names.
const limitMembers = ['max_tokens', 'max_completion_tokens', 'max_output_tokens'];
const gatewayMembers = new Map(
  [
    'model',
    'messages',
    'input',
    'prompt',
    'query',
    'documents',
    'system',
    'instructions',
    'tools',
    'stream',
    'stream_options',
    'n',
    ...limitMembers,
    'reasoning_effort',
    'reasoning',
    'output_config',
    'thinking',
    'previous_response_id',
    'conversation',
    'background',
  ].map((name) => [foldName(name), name]),
);
const nestedGatewayMembers: Readonly<Record<string, string>> = {
  stream_options: 'include_usage',
  reasoning: 'effort',
  output_config: 'effort',
};

// Synonyms that servers accept for the model, the number of answers and the output limit.
const synonyms = new Map(
  Object.entries({
    engine: 'model',
    modelid: 'model',
    modelname: 'model',
    bestof: 'n',
    numreturnsequences: 'n',
    candidatecount: 'n',
    numgenerations: 'n',
    numcompletions: 'n',
    npredict: 'max_tokens',
    numpredict: 'max_tokens',
    maxnewtokens: 'max_tokens',
    maxgeneratedtokens: 'max_tokens',
    maxgenlen: 'max_tokens',
    maxlength: 'max_tokens',
    maxtokenstosample: 'max_tokens',
  }),
);

export interface GuardOptions {
  /**
   * The path of the members' object, such as `providerOptions.acme`; empty for the request itself.
   */
  path?: string;
  /** The members that limit the output in the format of the request; absent if there are none. */
  limits?: readonly string[];
  /** Whether a server may merge these members into the request and replace the request's own. */
  isMerged?: boolean;
}

/** Throws a 400 or a 422 that names the first refused member. */
export function refuseUnsafeMembers(body: object, provider: ProviderEntry, options: GuardOptions = {}): void {
  const { path = '', isMerged = false } = options;
  // The gateway reads members of the request itself only; options of SDK packages have names of
  // their own.
  const isRequest = path === '';
  const unpricedNames = new Set(provider.unpriced_members.map(foldName));
  const namesByFold = new Map<string, string>();
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    const memberPath = isRequest ? name : `${path}.${name}`;
    const foldedName = foldName(name);
    if (addressesAndCredentials.has(foldedName)) throw refusedAddress(memberPath);
    if (value !== null && unpricedNames.has(foldedName))
      throw unpricedMember(memberPath, 'its price at this provider is not known');
    if (value !== null && (routingMembers.has(foldedName) || routingPrefixes.test(foldedName)))
      throw unpricedMember(memberPath, 'it can send the call to another model or at another price');
    if (isRequest || isMerged) refuseSpellings(name, memberPath, { provider, ...options });
    const earlierName = namesByFold.get(foldedName);
    if (earlierName !== undefined)
      throw unpricedMember(
        memberPath,
        `it is another spelling of ${earlierName}, which the request also has; send one of them`,
      );
    namesByFold.set(foldedName, name);
    if (isRequest) refuseNestedSpellings(name, value);
    // Some servers merge the members of `extra_body` into the request.
    if (foldedName === 'extrabody' && typeof value === 'object' && value !== null)
      refuseUnsafeMembers(value, provider, { path: memberPath, isMerged: true });
  }
}

function refuseSpellings(
  name: string,
  path: string,
  { provider, limits = [], isMerged = false }: GuardOptions & { provider: ProviderEntry },
): void {
  const providerLimit = provider.output_limit_member;
  if (name === providerLimit && !isMerged) return;
  const foldedName = foldName(name);
  const gatewayMember =
    gatewayMembers.get(foldedName) ??
    synonyms.get(foldedName) ??
    (providerLimit !== undefined && foldedName === foldName(providerLimit) ? providerLimit : undefined);
  if (gatewayMember !== undefined && (isMerged || gatewayMember !== name))
    throw unpricedMember(
      path,
      `a provider may take it for ${gatewayMember}; send ${gatewayMember} at the top of the request`,
    );
  if (limits.length > 0 && limitMembers.includes(name) && !limits.includes(name))
    throw unpricedMember(path, `the output limit of this format is ${limits[0]}`);
}

function refuseNestedSpellings(name: string, value: unknown): void {
  const member = Object.hasOwn(nestedGatewayMembers, name) ? nestedGatewayMembers[name] : undefined;
  if (member === undefined || typeof value !== 'object' || value === null) return;
  const spelling = Object.keys(value).find(
    (otherName) => otherName !== member && foldName(otherName) === foldName(member),
  );
  if (spelling !== undefined)
    throw unpricedMember(`${name}.${spelling}`, `a provider may take it for ${member}; send ${member}`);
}

function refusedAddress(path: string): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The member ${path} is refused: addresses and credentials of providers are configured on the server.`,
    {
      param: path,
      details: [{ path, message: 'is refused' }],
    },
  );
}

function unpricedMember(path: string, reason: string): Problem {
  return new Problem('impossible', 'unpriced_member', `The member ${path} is refused: ${reason}.`, {
    param: path,
  });
}
