static long a[4000],b[4000];
int main(void){ for(int i=0;i<4000;i++)a[i]=i; for(int i=0;i<4000;i++)b[i]=a[i]; long s=0; for(int i=0;i<4000;i++)s+=b[i]; return s&1; }
