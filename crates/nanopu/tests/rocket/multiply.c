static int __attribute__((noinline)) mul(int x,int y){int r=0; for(int i=0;i<32;i++){ if(x&1) r+=y; x=(unsigned)x>>1; y<<=1;} return r;}
int main(void){ int s=0; for(int i=0;i<60;i++) s+=mul(i*37,i*91+5); return s&1; }
