// Microsoft Entra ID: the client credentials grant of an application.
import type { EntraIdCredentials } from '../../catalog/credentials.ts';
import type { TokenRequest } from './access-tokens.ts';

const defaultScope = 'https://cognitiveservices.azure.com/.default';

export function entraIdRequest(
  { tenant_id: tenant, client_id: clientId, token_url: tokenUrl, scope = defaultScope }: EntraIdCredentials,
  clientSecret: string,
): TokenRequest {
  return {
    url: tokenUrl ?? `https://login.microsoftonline.com/${tenant}/oauth2/v2.0/token`,
    form: { grant_type: 'client_credentials', client_id: clientId, client_secret: clientSecret, scope },
  };
}
