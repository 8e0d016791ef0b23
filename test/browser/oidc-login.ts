// A gateway whose users can sign in as Grace Hopper at an OpenID provider.
import type { GatewayWorld } from '../support/gateway.ts';
import { startOidc, type Oidc } from '../support/oidc.ts';

/** Starts the provider and gives its settings to the gateway, which needs a moment to use them. */
export async function addOidcLogin(world: GatewayWorld): Promise<Oidc> {
  const oidc = await startOidc(`${world.url}/v1/accounts/oauth/callback`);
  oidc.account = { sub: 'grace', email: 'grace@shop.example', email_verified: true, name: 'Grace Hopper' };
  for (const [key, value] of Object.entries({
    OIDC_ISSUER: oidc.issuer,
    OIDC_CLIENT_ID: oidc.clientId,
    OIDC_CLIENT_SECRET: oidc.clientSecret,
  }))
    await world.admin.env.upsertVariable({ key, value });
  return oidc;
}
