static int pegs[3][16],top[3],moves; 
static void __attribute__((noinline)) move(int n,int f,int t,int v){ if(n==0)return; move(n-1,f,v,t); int d=pegs[f][--top[f]]; pegs[t][top[t]++]=d; moves++; move(n-1,v,t,f);} 
int main(void){ for(int i=0;i<8;i++)pegs[0][top[0]++]=8-i; move(8,0,2,1); return moves&1; }
