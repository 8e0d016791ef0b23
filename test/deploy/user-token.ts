// A user token of a gateway whose first administrator is `testAdministrator`.
import { createGatewayClient } from '@townhall/gateway';
import { testAdministrator } from '../support/gateway.ts';

/** Logs the administrator in, creates a Bureau unless there is one, and issues a token for the user `ada`. */
export async function issueUserToken(baseUrl: string): Promise<string> {
  const { session_token } = await createGatewayClient({ baseUrl }).admin.login({
    admin_id: testAdministrator.adminId,
    password: testAdministrator.password,
  });
  const admin = createGatewayClient({ baseUrl, token: session_token });
  const { items } = await admin.bureaus.listBureaus();
  const bureauId =
    items[0]?.bureau_id ??
    (await admin.bureaus.createBureau({ server_url: 'https://example.test' })).bureau_id;
  return (await admin.accounts.issueToken({ bureau_id: bureauId, external_id: 'ada' })).user_token;
}
