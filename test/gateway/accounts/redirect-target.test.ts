// Where a finished login may send the browser.
import { describe, expect, test } from 'vitest';
import { redirectBinding } from '../../../src/gateway/accounts/login/redirect-target.ts';

const bureau = { serverUrl: 'https://shop.example', redirectOrigins: [] };
const codeChallenge = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM';
const bind = (redirectTo: string, loginPage: string | null) =>
  redirectBinding({ redirect_to: redirectTo, code_challenge: codeChallenge }, bureau, loginPage);

describe('the login page as the address of a redirect login', () => {
  // The page sends its address as the browser writes it.
  test.each([
    ['as the browser writes it', 'https://models.example/login'],
    ['with its default port', 'https://models.example:443/login'],
    ['with a host in capitals', 'https://Models.Example/login'],
  ])('is accepted when configured %s', (_name, loginPage) => {
    const redirectTo = 'https://models.example/login';
    expect(bind(redirectTo, loginPage)).toEqual({ redirectTo, codeChallenge });
  });

  test.each([
    ['another path of its origin', 'https://models.example/elsewhere', 'https://models.example/login'],
    ['any address while the page’s own is unknown', 'https://models.example/login', null],
  ])('does not allow %s', (_name, redirectTo, loginPage) => {
    expect(() => bind(redirectTo, loginPage)).toThrow('which is not one of the Bureau');
  });
});
